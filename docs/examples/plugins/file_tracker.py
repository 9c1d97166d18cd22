"""A tracker: test success, in a file in the run's folder."""

from rl_agents.reporting.trackers import TrackerEntry, register_tracker


class FileTracker:
    """One run; if a method raises, the run continues without this tracker, after one warning."""

    def __init__(self, run):
        self.id, self.path = run.name, run.folder / "success.txt"

    def log(self, iteration, metrics):
        """Log the numbers of an iteration."""
        if "eval/success_rate" in metrics:
            with self.path.open("a") as file:
                print(iteration, metrics["eval/success_rate"], file=file)

    def episodes(self, iteration, rows):
        """Log some episodes of an evaluation: rows of a table, each a dictionary."""

    def close(self, status):
        """Called when the run has ended: done, interrupted, fell or failed."""


register_tracker(TrackerEntry("own-file", FileTracker))
