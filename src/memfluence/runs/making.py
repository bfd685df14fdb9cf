"""Making a run: the whole way from a dataset and a learner to a `Run`, in one call."""

from memfluence.runs.run import Run
from memfluence.runs.until import trained
from memfluence.training.campaign import check_failures, prepare
from memfluence.training.options import RunOptions, taking


@taking(RunOptions)
def run(options: RunOptions) -> Run:
    """Train `trials` models (2000) on random subsets (70% of the examples) and store what each of them gets right.

    `dataset` is a name ("digits", "npz:FILE", ...), a `Dataset`, or arrays (x_train, y_train, x_test, y_test).
    `learner` is a built-in name, "file.py:attribute", a scikit-learn estimator, a function train(x, y, seed) ->
    predict, or what `memfluence.network` makes of a torch module. `out` is the run's directory (runs/NAME if left out)
    or a URI (s3://bucket/run); an equal run that is there is resumed, a different one is refused.

    `groups` keeps or leaves out whole groups: an array of one value per training example, a .npy file of one, "class",
    or the name of an attribute of the data; `keep` is then the fraction of the groups. `design` is "fixed" unless one
    is named, with groups "lemma" (if `keep` leaves two or more).

    Networks that take long to train are checkpointed within the trial every `checkpoint_every` seconds and at Ctrl-C,
    and go on from there with the same result; 0 turns that off.

    `engine` is "local", "processes" (`workers` of this machine) or "ray": the cluster at `address` (of which this
    machine is a node if it is left out), with `gpus_per_worker`, such as 0.5, for each of at most `workers` tasks at a
    time; `out` must then be on storage that all nodes see. `shard` is "i/N", a part of the run, or "auto".

    `until` names a target ("jaccard=0.7", "stderr=0.03", "pairs=fdr:0.1,share:0.9"): the run is looked at with numbers
    of trials that grow by a quarter and stops by itself, at `trials` at the latest.

    Trials that fail are reported by a warning and do not stop the others; it is an error if none succeeds. Where the
    first 20 fail alike it stops, unless `keep_going`. With `workers` > 1 the calling script needs the usual
    `if __name__ == "__main__":` guard; a notebook needs nothing.
    """
    campaign = prepare(options)
    store = trained(campaign)
    check_failures(store, stacklevel=3)
    return Run(store, campaign.dataset)
