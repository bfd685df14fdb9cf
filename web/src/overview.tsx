import { fraction } from "./data";
import { Histogram } from "./histogram";
import { Caption, ExampleLink, Notice, Stat, Waiting } from "./parts";
import { groupsOf, PairGroup, type PairTable } from "./pairs";
import { columns } from "./data";
import { ordered, report } from "./report";
import { href, useDocument } from "./state";
import { approximate, count, percent, plural, value } from "./words";

export function Overview() {
  const { meta } = report;
  const { facts } = meta;
  const most = [...ordered("train", "memorized").slice(0, 16)].filter((k) => !Number.isNaN(fraction(report.train.memorization, k)));
  const least = [...ordered("train", "typical").slice(0, 16)].filter((k) => !Number.isNaN(fraction(report.train.memorization, k)));
  const unfinished = facts.trialsWanted > facts.trials && facts.keep !== null;
  return (
    <>
      <header class="hero">
        <h1 tabIndex={-1}>{meta.title}</h1>
        <p class="lead">
          <b>{plural(facts.trials, "model")}</b>
          {unfinished && ` of ${count(facts.trialsWanted)}`}, each trained on{" "}
          {facts.keep === null ? "random subsets" : `a random ${percent(facts.keep)}`} of{" "}
          {plural(meta.nTrain, "training example")} and asked about {plural(meta.nTest, "test example")}. An example is{" "}
          <em>memorized</em> when models are right on it only if they were trained on it.
        </p>
      </header>
      {meta.notices.map((notice) => (
        <Notice key={notice}>{notice}</Notice>
      ))}
      <dl class="stats">
        <Stat
          number={count(facts.memorized)}
          detail={
            <>
              {percent(facts.memorized / meta.nTrain, 1)} of all; {count(facts.surelyMemorized)} with a 95% interval above {value(facts.thresholds.memorization)}
            </>
          }
        >
          memorized examples
        </Stat>
        <Stat
          number={count(facts.pairs.pairs)}
          detail={<>about {approximate(facts.pairs.byChance)} would be found by chance</>}
        >
          high-influence pairs
        </Stat>
        <Stat number={percent(facts.testAccuracy, 1)} detail="mean over models">
          test accuracy
        </Stat>
        <Stat
          number={percent(facts.accuracyOut, 1)}
          detail={<>{percent(facts.accuracyIn, 1)} when they were trained on</>}
        >
          right on held-out training examples
        </Stat>
      </dl>
      <section class="card">
        <h2>How much is memorized</h2>
        <Histogram />
      </section>
      <section>
        <div class="head">
          <h2>Most memorized</h2>
          <a href={href("gallery", { sort: "memorized" })}>See all {count(meta.nTrain)}</a>
        </div>
        {most.length ? <Strip examples={most} /> : <p>No training example has an estimate yet: more trials are needed.</p>}
      </section>
      <section>
        <div class="head">
          <h2>Who carries whom</h2>
          <a href={href("pairs")}>See all {plural(facts.pairs.pairs, "pair")}</a>
        </div>
        <TopPairs />
      </section>
      <section>
        <h2>To look through</h2>
        <div class="todo">
          <a class="card" href={href("mislabels")}>
            <strong>{meta.predictions ? plural(meta.found.mislabels, "likely mislabel") : `${plural(meta.found.mislabels, "label")} in doubt`}</strong>
            <span>Labels that models reject that never saw them. Tick, then download your decisions.</span>
          </a>
          <a class="card" href={href("duplicates")}>
            <strong>{plural(meta.found.duplicates, "train-test near-duplicate")}</strong>
            <span>Test examples that hang on one training example, as if it were the same.</span>
          </a>
          <a class="card" href={href("classes")}>
            <strong>{plural(meta.classes.length, "class", "classes")}</strong>
            <span>Which of them live on memorized examples, and which are learned from the rest.</span>
          </a>
        </div>
      </section>
      <section>
        <div class="head">
          <h2>Least memorized</h2>
          <a href={href("gallery", { sort: "typical" })}>See all</a>
        </div>
        <Strip examples={least} />
      </section>
      <section class="card prose">
        <h2>How sure is this?</h2>
        <p>
          A training example was seen by about {count(facts.trialsIn)} models and left out of about {count(facts.trialsOut)}
          {facts.stderr !== null && (
            <>
              ; a typical standard error of its memorization is {value(facts.stderr, 3)}
              {facts.stderrOfMemorized !== null && <>, of a memorized example's {value(facts.stderrOfMemorized, 3)}</>}
            </>
          )}
          . Intervals are 95% intervals for one example; the top of a long list is partly there by luck.
        </p>
        <p>
          Pairs: memorization at least {value(facts.thresholds.memorization)} and influence at least{" "}
          {value(facts.thresholds.influence)}, same class. {count(facts.pairs.pairs)} of {count(facts.pairs.tested)} pairs
          reach it, with {plural(facts.pairs.train_examples, "training example")} and{" "}
          {plural(facts.pairs.test_examples, "test example")}, {count(facts.pairs.single_test_examples)} of them in one pair
          only. With masks dealt out anew, where no example can matter, {approximate(facts.pairs.byChance)} pairs reach it.
        </p>
        {facts.pairs.warning && <Notice>{facts.pairs.warning}</Notice>}
        <p class="formula">
          memorization(<i>i</i>) = P[right on <i>i</i> | <i>i</i> was kept] − P[right on <i>i</i> | <i>i</i> was left out]
          <br />
          influence(<i>i</i>, <i>j</i>) = P[right on test <i>j</i> | <i>i</i> was kept] − P[right on test <i>j</i> | <i>i</i> was
          left out]
        </p>
      </section>
    </>
  );
}

function Strip({ examples }: { examples: number[] }) {
  return (
    <ul class="strip">
      {examples.map((index) => (
        <li key={index}>
          <ExampleLink split="train" index={index} side={112}>
            <Caption split="train" index={index} />
          </ExampleLink>
        </li>
      ))}
    </ul>
  );
}

function TopPairs() {
  const table = useDocument<PairTable>("pairs");
  if (!table || table instanceof Error) return <Waiting what={table} />;
  const groups = groupsOf(columns(table)).slice(0, 4);
  if (!groups.length) return <p>No pair reaches both thresholds.</p>;
  return (
    <ul class="groups">
      {groups.map((group) => (
        <li key={group.train}>
          <PairGroup group={group} />
        </li>
      ))}
    </ul>
  );
}
