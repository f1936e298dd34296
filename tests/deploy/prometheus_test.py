"""Starts moed on the demo checkpoint and the real Prometheus, makes some load, then asks Prometheus every recorded rule and every
dashboard query: an empty answer or a metric name that nobody exports is a failure. promtool checks the files themselves."""
import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import yaml

DEADLINE_SECONDS = 120


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(what, condition):
    """Polls until `condition` returns something true; the deadline is the only clock."""
    end = time.monotonic() + DEADLINE_SECONDS
    last = None
    while time.monotonic() < end:
        try:
            value = condition()
            if value:
                return value
        except OSError as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"gave up waiting for {what} ({last})")


class Prometheus:
    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path, **parameters):
        query = "?" + urllib.parse.urlencode(parameters) if parameters else ""
        with urllib.request.urlopen(self.url + path + query, timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        return self.get("/api/v1/query", query=expression)["result"]

    def metric_names(self):
        return set(self.get("/api/v1/label/__name__/values"))


def has_number(result):
    return any(sample["value"][1] != "NaN" for sample in result)


def metric_names_in(expression):
    """Names of series in a PromQL expression: identifiers that are followed by {, [, or nothing that makes them a function or label."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    bare = re.sub(r"\{[^}]*\}", "", bare)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    keywords = {"and", "or", "unless", "bool", "offset"}
    names = re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\s*\(|[a-zA-Z0-9_:])", re.sub(r"\[[^\]]*\]", "", bare))
    return {name for name in names if name not in keywords and not re.fullmatch(r"[eE]\d*|inf|nan", name)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True, help="folder with moed, moectl and moed-pack")
    parser.add_argument("--source", required=True, help="the project's root")
    options = parser.parse_args()
    deploy = os.path.join(options.source, "deploy")
    rules_file = os.path.join(deploy, "prometheus", "rules.yml")
    dashboard_file = os.path.join(deploy, "grafana", "dashboards", "moed.json")
    subprocess.run(["promtool", "check", "rules", rules_file], check=True)
    subprocess.run(["promtool", "check", "config", os.path.join(deploy, "prometheus", "prometheus.yml")], check=True)

    processes = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(options, folder, processes, rules_file, dashboard_file)
        finally:
            for process in reversed(processes):
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.wait(timeout=60)
    print("all rules and dashboard queries answer")


def run(options, folder, processes, rules_file, dashboard_file):
    program = lambda name: os.path.join(options.bin, name)
    store = os.path.join(folder, "demo.moed")
    subprocess.run([program("moed-pack"), os.path.join(options.source, "models", "tales-qwen"), store], check=True)
    grpc_port, metrics_port, prometheus_port = free_port(), free_port(), free_port()
    server = f"127.0.0.1:{grpc_port}"
    processes.append(subprocess.Popen([program("moed"), "--store", store, "--memory-budget", "10MiB", "--predictor", "cross-layer-gate",
                                       "--listen", server, "--metrics-listen", f"127.0.0.1:{metrics_port}"]))
    wait_for("moed", lambda: subprocess.run([program("moectl"), "--server", server, "health"], capture_output=True).returncode == 0)

    config = os.path.join(folder, "prometheus.yml")
    with open(config, "w") as file:
        yaml.safe_dump({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [rules_file],
                        "scrape_configs": [{"job_name": "moed", "static_configs": [{"targets": [f"127.0.0.1:{metrics_port}"]}]}]}, file)
    processes.append(subprocess.Popen(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb", "--log.level=error",
                                       f"--web.listen-address=127.0.0.1:{prometheus_port}"]))
    prometheus = Prometheus(prometheus_port)
    wait_for("the first scrape", lambda: prometheus.query('up{job="moed"} == 1'))

    def load():
        subprocess.run([program("moectl"), "--server", server, "bench", "--requests", "4", "--concurrency", "2", "--max-new-tokens", "12",
                        "--ignore-eos", "--json"], check=True, capture_output=True)
        return True

    load()
    with open(rules_file) as file:
        rules = [rule for group in yaml.safe_load(file)["groups"] for rule in group["rules"]]
    with open(dashboard_file) as file:
        targets = [target["expr"] for panel in json.load(file)["panels"] for target in panel["targets"]]
    for expression in [rule["record"] for rule in rules if "record" in rule] + [rule["expr"] for rule in rules if "record" in rule] + targets:
        wait_for(f"an answer to {expression}", lambda: load() and has_number(prometheus.query(expression)))

    known = prometheus.metric_names()
    recorded = {rule["record"] for rule in rules if "record" in rule}
    for expression in [rule["expr"] for rule in rules] + targets:
        unknown = metric_names_in(expression) - known - recorded
        assert not unknown, f"{sorted(unknown)} in '{expression}' is exported by nobody"
    health = prometheus.get("/api/v1/rules")
    broken = [rule["name"] for group in health["groups"] for rule in group["rules"] if rule["health"] == "err"]
    assert not broken, f"rules fail: {broken}"


if __name__ == "__main__":
    sys.exit(main())
