"""Three moed on the demo checkpoint, a moed-http before each, and the real Prometheus: under some load every recorded rule and
dashboard query answers for all of them, and no expression names a metric that nobody exports. promtool checks the files, and what
the alerts fire at."""

import functools
import json
import re
import subprocess
import urllib.parse
import urllib.request
from typing import Any, ClassVar

import yaml

from tests.http.front import Front, front_of
from tests.real_programs import RealProgramsTest, main, metrics_of
from tools.daemon import DEMO_CHECKPOINT, ROOT, Daemon, pack, running
from tools.server_process import ServerProcess, free_port, wait_until

PROMETHEUS_FOLDER = ROOT / "deploy" / "prometheus"
RULES_FILE = PROMETHEUS_FOLDER / "rules.yml"
DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"
ENDPOINT_PICKER = ROOT / "deploy" / "kubernetes" / "endpoint-picker.yaml"
RUNBOOK = ROOT / "docs" / "runbook.md"
ALERT_TESTS = ROOT / "tests" / "deploy" / "alerts.yaml"
DAEMON_FLAGS = ("--memory-budget", "10MiB", "--predictor", "cross-layer-gate")
LOAD = ("--requests", 4, "--concurrency", 2, "--max-new-tokens", 12, "--ignore-eos")
WAIT_SECONDS = 120
WITH_TLS_ALONE = {"moe_tls_certificate_end_seconds"}  # tests/system/tls_test.py sees it


def rules() -> list[dict[str, str]]:
    return [rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]]


def recorded_rules() -> list[dict[str, str]]:
    """Those that make a series of their own; the others are alerts."""
    return [rule for rule in rules() if "record" in rule]


def dashboards() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))]


def dashboard_queries() -> list[str]:
    """With every variable at All."""
    found = []
    for board in dashboards():
        names = {variable["name"] for variable in board["templating"]["list"]}
        for panel in board["panels"]:
            for target in panel["targets"]:
                used = set(re.findall(r"\$(\w+)", target["expr"]))
                assert used <= names, f"{board['title']}: {panel['title']} has variables that the board lacks: {used - names}"
                found.append(re.sub(r"\$\w+", ".*", target["expr"]))
    return found


def metric_names_in(expression: str) -> set[str]:
    """Names of series in a PromQL expression: identifiers that are followed by {, [, or nothing that makes them a function or a
    label."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    bare = re.sub(r"\{[^}]*\}", "", bare)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    keywords = {"and", "or", "unless", "bool", "offset"}
    names = re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\s*\(|[a-zA-Z0-9_:])", re.sub(r"\[[^\]]*\]", "", bare))
    return {name for name in names if name not in keywords and not re.fullmatch(r"[eE]\d*|inf|nan", name)}


class PrometheusTest(RealProgramsTest):
    """A Prometheus that scrapes three daemons and their moed-http every second."""

    daemons: ClassVar[list[Daemon]]
    fronts: ClassVar[list[Front]]
    url: ClassVar[str]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        store = pack(cls.binaries, DEMO_CHECKPOINT, cls.folder / "demo.moed")
        cls.daemons = [cls.enterClassContext(running(cls.binaries, "--store", store, *DAEMON_FLAGS)) for _ in range(3)]
        cls.fronts = [cls.enterClassContext(front_of(daemon)) for daemon in cls.daemons]
        port = free_port()
        cls.url = f"http://127.0.0.1:{port}"
        jobs = {"moed": [daemon.metrics_address for daemon in cls.daemons], "moed-http": [front.address for front in cls.fronts]}
        scrape = [{"job_name": name, "static_configs": [{"targets": targets}]} for name, targets in jobs.items()]
        intervals = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config = {"global": intervals, "rule_files": [str(RULES_FILE)], "scrape_configs": scrape}
        config_file = cls.folder / "prometheus.yml"
        config_file.write_text(yaml.safe_dump(config))
        data = cls.folder / "tsdb"
        flags = [f"--config.file={config_file}", f"--storage.tsdb.path={data}", f"--web.listen-address=127.0.0.1:{port}"]
        prometheus = ServerProcess(["prometheus", *flags, "--log.level=error"])
        cls.addClassCleanup(prometheus.close)
        prometheus.wait_for(cls.scraped, "the first scrape")

    @classmethod
    def scraped(cls) -> bool:
        try:
            return len(cls.query("up == 1")) == len(cls.daemons) + len(cls.fronts)
        except OSError:
            return False

    @classmethod
    def get(cls, path: str, **parameters: str) -> Any:
        query = "?" + urllib.parse.urlencode(parameters) if parameters else ""
        with urllib.request.urlopen(cls.url + path + query, timeout=10) as answer:
            return json.load(answer)["data"]

    @classmethod
    def query(cls, expression: str) -> list[dict[str, Any]]:
        samples: list[dict[str, Any]] = cls.get("/api/v1/query", query=expression)["result"]
        return samples

    def answers(self, expression: str) -> bool:
        """Whether it has a number for each daemon or moed-http that it tells apart; a little more load where it has not."""
        found = [sample for sample in self.query(expression) if sample["value"][1] != "NaN"]
        instances = {sample["metric"].get("instance") for sample in found}
        if found and (instances == {None} or len(instances) == len(self.daemons)):
            return True
        for daemon in self.daemons:
            daemon.json("bench", *LOAD)
            daemon.moectl("generate", "--prompt", "x", "--temperature", -1, check=False)  # which is refused
        for front in self.fronts:
            front.get("/v1/models")
        return False

    def test_every_rule_and_query_answers_and_names_what_is_exported(self) -> None:
        recorded = {rule["record"] for rule in recorded_rules()}
        self.assertTrue(recorded)
        for expression in [*recorded, *(rule["expr"] for rule in recorded_rules()), *dashboard_queries()]:
            answers = functools.partial(self.answers, expression)
            wait_until(answers, f"an answer to {expression}", WAIT_SECONDS)
        exported = set(self.get("/api/v1/label/__name__/values"))
        for expression in [*(rule["expr"] for rule in rules()), *dashboard_queries()]:
            self.assertEqual(metric_names_in(expression) - exported - recorded - WITH_TLS_ALONE, set(), expression)
        groups = self.get("/api/v1/rules")["groups"]
        broken = [rule["name"] for group in groups for rule in group["rules"] if rule["health"] == "err"]
        self.assertEqual(broken, [])

    def test_legends_tell_the_series_of_a_panel_apart(self) -> None:
        for board in dashboards():
            for panel in board["panels"]:
                legends = []
                for target in panel["targets"]:
                    query = functools.partial(self.query, re.sub(r"\$\w+", ".*", target["expr"]))
                    for sample in wait_until(query, panel["title"], WAIT_SECONDS):
                        labels = sample["metric"]
                        legends.append(re.sub(r"{{(\w+)}}", lambda label: labels.get(label[1], ""), target["legendFormat"]))  # noqa: B023
                self.assertEqual(len(legends), len(set(legends)), f"{board['title']}: {panel['title']}: {sorted(legends)}")

    def test_an_endpoint_picker_finds_gauges_of_one_series(self) -> None:
        text = metrics_of(self.daemons[0])
        flags = yaml.safe_load(ENDPOINT_PICKER.read_text())["inferenceExtension"]["flags"]
        names = [value for flag, value in flags.items() if flag.endswith("-metric") and value]
        self.assertEqual(len(names), 3)
        for name in names:
            self.assertIn(f"# TYPE {name} gauge\n", text)
            self.assertEqual(len(re.findall(rf"^{name}[ {{]", text, re.M)), 1, name)
        used = flags["kv-cache-usage-percentage-metric"]
        samples = self.query(f"max_over_time({used}[1h])")
        self.assertTrue(all(0 <= float(sample["value"][1]) <= 1 for sample in samples), samples)
        self.assertEqual(self.query(f"{used} != moe_kv_pages_used / moe_kv_pages"), [])

    def test_variables_have_values(self) -> None:
        for board in dashboards():
            for variable in board["templating"]["list"]:
                query = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"])
                assert query, variable
                wait_until(lambda: self.query(f"count by ({query[2]}) ({query[1]})"), variable["query"], WAIT_SECONDS)  # noqa: B023

    def test_each_alert_is_in_the_runbook_and_its_firing_is_tested(self) -> None:
        alerts = {rule["alert"] for rule in rules() if "alert" in rule}
        self.assertEqual(set(re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.M)), alerts)
        tested = set(re.findall(r'alertname="(\w+)"', ALERT_TESTS.read_text()))
        self.assertEqual(tested, alerts)
        run = subprocess.run(["promtool", "test", "rules", ALERT_TESTS], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_the_files_are_what_promtool_takes(self) -> None:
        for what, file in (("rules", RULES_FILE), ("config", PROMETHEUS_FOLDER / "prometheus.yml")):
            run = subprocess.run(["promtool", "check", what, file], capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


if __name__ == "__main__":
    main()
