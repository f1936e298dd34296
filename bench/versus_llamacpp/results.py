"""The results as they are kept: one JSON file with every turn, and what is computed from them."""
import json
import os
import statistics
from dataclasses import dataclass


class Results:
    def __init__(self, path):
        self.path = path
        self.data = {"machine": {}, "versions": {}, "files": {}, "not_possible": {}, "llama_bench": {}, "rates": [], "turns": []}
        if os.path.exists(path):
            with open(path) as file:
                self.data = json.load(file)

    def save(self):
        partial = self.path + ".partial"
        with open(partial, "w") as file:
            json.dump(self.data, file, indent=1)
            file.write("\n")
        os.replace(partial, self.path)

    def add(self, record):
        self.data["turns"].append(record)
        self.save()

    def of(self, cell, contender=None, program=None):
        return [r for r in self.data["turns"] if r["cell"] == cell and contender in (None, r["contender"]) and
                program in (None, r["program"])]

    def has(self, cell, contender, turn):
        return any(r["turn"] == turn for r in self.of(cell, contender))

    def cells(self):
        return list(dict.fromkeys(r["cell"] for r in self.data["turns"]))

    def medians(self, cell, metric):
        """{contender: median}, of those that have a number."""
        found = {}
        for contender in dict.fromkeys(r["contender"] for r in self.of(cell)):
            summary = Summary.of([r.get(metric) for r in self.of(cell, contender)])
            if summary is not None:
                found[contender] = summary.median
        return found

    def best(self, cell, program, metric, smallest=False, threads=None):
        """(contender, Summary) of the setting with the best median, or None."""
        contenders = dict.fromkeys(r["contender"] for r in self.of(cell, program=program) if threads in (None, r["threads"]))
        medians = {name: median for name, median in self.medians(cell, metric).items() if name in contenders}
        if not medians:
            return None
        name = (min if smallest else max)(medians, key=medians.get)
        return name, Summary.of([r.get(metric) for r in self.of(cell, name)])


@dataclass
class Summary:
    median: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values):
        values = [value for value in values if value is not None]
        return Summary(statistics.median(values), min(values), max(values), len(values)) if values else None


def ratio(ours, theirs, smaller_is_better=False):
    """How many times as good ours is, from the medians, and the widest it can be read: (ratio, lowest, highest)."""
    if smaller_is_better:
        return theirs.median / ours.median, theirs.low / ours.high, theirs.high / ours.low
    return ours.median / theirs.median, ours.low / theirs.high, ours.high / theirs.low
