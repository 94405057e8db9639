"""Results of an experiment in a store, without a server."""

from whitelie.service.engine.learner import Learner
from whitelie.service.experiment.results import Results, results_of
from whitelie.service.experiment.snapshot import recent_counts
from whitelie.service.experiment.unanswered import stored_counts
from whitelie.service.store.contract import Store, StoredExperiment


def stored_results(store: Store, saved: StoredExperiment, minute: int) -> Results:
    """Return what the reports in a store say."""
    learner = Learner(saved, {})
    learner.restart_from(stored_counts(store, saved.number, learner.experiment, minute))
    snapshot = learner.snapshot(recent_counts(store, saved.number, minute))
    return results_of(snapshot.with_evidence(store, saved.number, minute))
