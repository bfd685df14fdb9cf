import { Against, reached } from "./against";
import { columns } from "./data";
import { Histogram } from "./histogram";
import { LongTail } from "./map";
import { groupsOf, PairGroup, type PairTable } from "./pairs";
import { Caption, ExampleLink, Notice, Stat, Waiting } from "./parts";
import { oneOfEach, ordered, report, scoreOf, SORTS } from "./report";
import { href, useDocument, type Route } from "./state";
import { approximate, count, percent, plural, value } from "./words";

const STRIP = 16;

/** `there`: the columns of all examples are; the map and the counts do without. */
export function Overview({ route, there }: { route: Route; there: boolean }) {
  const { meta } = report;
  const { facts } = meta;
  const { believed, atLeast, rate } = facts.pairs;
  const byChance = reached(Math.round(facts.thresholds.influence * atLeast.steps)).chance;
  const what = meta.scores ? "E[score of" : "P[right on";
  const unfinished = facts.trialsWanted > facts.trials && facts.keep !== null;
  return (
    <>
      <header class="hero">
        <h1 tabIndex={-1}>{meta.title}</h1>
        <p class="lead">
          <b>{plural(facts.trials, "model")}</b>
          {unfinished && ` of ${count(facts.trialsWanted)}`}, each trained on{" "}
          {facts.keep === null ? "random subsets" : `a random ${percent(facts.keep)}`} of{" "}
          {plural(meta.nTrain, "training example")}. {meta.scores ? (
            <>
              An example is <em>memorized</em> when models do better on it if they saw it.
            </>
          ) : (
            <>
              An example is <em>memorized</em> when models are right on it only if they saw it.
            </>
          )}
        </p>
      </header>
      {meta.notices.map((notice) => (
        <Notice key={notice}>{notice}</Notice>
      ))}
      <LongTail route={route} />
      <dl class="stats">
        <Stat
          number={count(facts.memorized)}
          detail={
            <>
              {percent(facts.memorized / meta.nTrain, 1)} of all; {count(facts.surelyMemorized)} surely, with a 95% interval above{" "}
              {scoreOf(facts.thresholds.memorization)}
            </>
          }
        >
          training examples are memorized
        </Stat>
        <Stat
          number={count(believed.test_examples)}
          detail={
            <>
              {plural(believed.pairs, "pair")} believed, at a false discovery rate of {percent(rate)}
            </>
          }
        >
          test predictions depend on single training examples
        </Stat>
        <Stat number={meta.scores ? scoreOf(facts.testAccuracy) : percent(facts.testAccuracy, 1)} detail="mean over models">
          {meta.scores ? "score on test examples" : "test accuracy"}
        </Stat>
        <Stat
          number={meta.scores ? scoreOf(facts.accuracyOut) : percent(facts.accuracyOut, 1)}
          detail={<>{meta.scores ? scoreOf(facts.accuracyIn) : percent(facts.accuracyIn, 1)} when they were trained on</>}
        >
          {meta.scores ? "score on held-out training examples" : "right on held-out training examples"}
        </Stat>
      </dl>
      <section>
        <div class="head">
          <h2>Test predictions that depend on one training example</h2>
          <a href={href("pairs")}>See all {plural(believed.pairs, "pair")}</a>
        </div>
        <TopPairs there={there} />
      </section>
      <section class="two">
        <div class="card">
          <h2>How much is memorized</h2>
          <Histogram />
        </div>
        <div class="card">
          <div class="head">
            <h2>Pairs found against chance</h2>
            <a href={href("pairs")}>Choose a threshold</a>
          </div>
          <Against least={0} />
        </div>
      </section>
      <section>
        <div class="head">
          <h2>Most memorized</h2>
          <a href={href("gallery", { sort: "memorized" })}>See all {count(meta.nTrain)}</a>
        </div>
        <Strip there={there} sort="memorized" />
      </section>
      <section>
        <h2>To look through</h2>
        <div class="todo">
          <a class="card" href={href("mislabels")}>
            <strong>{plural(meta.found.mislabels, "label")} to check</strong>
            <span>Models that never saw the example say another label. Tick, then download your decisions.</span>
          </a>
          <a class="card" href={href("duplicates")}>
            <strong>{plural(meta.found.duplicates, "train-test near-duplicate")}</strong>
            <span>Test examples that are lost without one training example, as if it were the same.</span>
          </a>
          <a class="card" href={href("classes")}>
            <strong>{plural(meta.classes.length, "class", "classes")}</strong>
            <span>How much of each is memorized, and how much is learned from the rest.</span>
          </a>
        </div>
      </section>
      <section>
        <div class="head">
          <h2>Typical</h2>
          <a href={href("gallery", { sort: "typical" })}>See all</a>
        </div>
        <Strip there={there} sort="typical" />
      </section>
      <section class="card prose">
        <h2>How sure is this?</h2>
        <p>
          About {count(facts.trialsIn)} models saw a training example, about {count(facts.trialsOut)} did not
          {facts.stderr !== null && (
            <>
              . The standard error of its memorization is typically {value(facts.stderr, 3)}
              {facts.stderrOfMemorized !== null && <>, and {value(facts.stderrOfMemorized, 3)} if it is memorized</>}
            </>
          )}
          . Intervals are 95% intervals for one example. The first examples of a long list are partly there by luck.
        </p>
        <p>
          {meta.scores ? (
            <>
              A pair is a memorized training example and a test example{meta.classes.length > 1 && " of its class"}; there are{" "}
              {count(facts.pairs.tested)}.{" "}
            </>
          ) : (
            <>
              A pair is a training example with a memorization of at least {value(facts.thresholds.memorization)} and a test
              example of its class. {count(facts.pairs.pairs)} of {plural(facts.pairs.tested, "pair")} reach an influence of{" "}
              {value(facts.thresholds.influence)}
              {!Number.isNaN(byChance) && <>; with masks dealt out anew, where no example can matter, {approximate(byChance)} do</>}.{" "}
            </>
          )}
          {plural(believed.pairs, "pair is", "pairs are")} believed: each was tested, and at most {percent(rate)} of them are expected to be
          there by chance. They hold {plural(believed.train_examples, "training example")} and{" "}
          {plural(believed.test_examples, "test example")}, {count(believed.single_test_examples)} of them in one pair only.
        </p>
        <p class="formula">
          memorization(<i>i</i>) = {what} <i>i</i> | <i>i</i> was kept] − {what} <i>i</i> | <i>i</i> was left out]
          <br />
          influence(<i>i</i>, <i>j</i>) = {what} test <i>j</i> | <i>i</i> was kept] − {what} test <i>j</i> | <i>i</i> was left out]
        </p>
      </section>
    </>
  );
}

/** The first examples of an order, one of each class. */
function Strip({ there, sort }: { there: boolean; sort: string }) {
  if (!there) return <div class="strip-room" />;
  const examples = oneOfEach(ordered("train", sort), STRIP);
  if (!examples.length) return <p>No training example has an estimate yet: more trials are needed.</p>;
  return (
    <ul class="strip">
      {examples.map((index) => (
        <li key={index}>
          <ExampleLink split="train" index={index} side={112}>
            <Caption split="train" index={index} by={SORTS.train[sort][1]} />
          </ExampleLink>
        </li>
      ))}
    </ul>
  );
}

function TopPairs({ there }: { there: boolean }) {
  const table = useDocument<PairTable>(there ? "pairs" : null);
  if (!there) return <div class="groups-room" />;
  if (!table || table instanceof Error) return <Waiting what={table} />;
  const groups = groupsOf(columns(table), true);
  if (!groups.length) return <p>No pair can be told from chance yet: more trials are needed.</p>;
  return (
    <ul class="groups">
      {eachOfAClass(groups, 4).map((group) => (
        <li key={group.train}>
          <PairGroup group={group} />
        </li>
      ))}
    </ul>
  );
}

/** The strongest of each class, strongest first; then the strongest of what is left. */
function eachOfAClass(groups: ReturnType<typeof groupsOf>, most: number): ReturnType<typeof groupsOf> {
  const seen = new Set<number>();
  const first = groups.filter((group) => {
    const code = report.train.label[group.train];
    return !seen.has(code) && seen.add(code);
  });
  return [...first, ...groups.filter((group) => !first.includes(group))].slice(0, most);
}
