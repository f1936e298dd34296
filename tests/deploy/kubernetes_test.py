"""deploy/kubernetes against Kubernetes' schemas and the programs: every field, flag, port and time is one that exists."""

import copy
import itertools
import json
import os
import re
import shutil
import ssl
import subprocess
from typing import Any

import yaml

from tests.authority import Authority
from tests.http.front import front_of
from tests.real_programs import RealProgramsTest, main
from tests.tokens import write_tokens
from tests.virtual_environment import fetched
from tools.daemon import ROOT, pack_demo

FOLDER = ROOT / "deploy" / "kubernetes"
VERSIONS = ("1.29", "1.37")
OVERLAYS = ("cpu", "jetson", "replicas")
OWN, ASKER = "the-pods-own-token-0", "who-asks-the-pod-000"


def documents(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text)}


def base() -> dict[tuple[str, str], dict[str, Any]]:
    kustomization = yaml.safe_load((FOLDER / "base" / "kustomization.yaml").read_text())
    return documents("---\n".join((FOLDER / "base" / name).read_text() for name in kustomization["resources"]))


def secured() -> dict[tuple[str, str], dict[str, Any]]:
    """The base with the component."""
    component = yaml.safe_load((FOLDER / "components" / "secured" / "kustomization.yaml").read_text())
    (patch,) = component["patches"]
    target = (patch["target"]["kind"], patch["target"]["name"])
    return base() | {target: patched(base()[target], yaml.safe_load(patch["patch"]))}


def patched(document: Any, operations: list[dict[str, Any]]) -> Any:
    """What a JSON patch of tests, replacements and additions makes of it."""
    whole = copy.deepcopy(document)
    for operation in operations:
        *parents, last = operation["path"].split("/")[1:]
        at = whole
        for parent in parents:
            at = at[int(parent)] if isinstance(at, list) else at[parent]
        key: Any = last if isinstance(at, dict) else len(at) if last == "-" else int(last)
        if operation["op"] == "test":
            assert at[key] == operation["value"], operation
        elif operation["op"] == "add" and isinstance(at, list):
            at.insert(key, operation["value"])
        else:
            assert operation["op"] == "add" or key in at or isinstance(at, list), operation
            at[key] = operation["value"]
    return whole


class Kubernetes(RealProgramsTest):
    def validate(self, text: str, name: str) -> None:
        program = fetched(self.binaries.parent, "kubernetes-validate==1.37.0", "kubernetes-validate")
        file = self.folder / f"{name}.yaml"
        file.write_text(text)
        for version in VERSIONS:
            run = subprocess.run(
                [program, "--strict", "--quiet", "-k", version, file], capture_output=True, text=True, check=False
            )
            self.assertEqual((run.returncode, run.stdout), (0, ""), f"{name}: {run.stdout}{run.stderr}")

    def pod(self, found: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
        spec: dict[str, Any] = found["StatefulSet", "moed"]["spec"]["template"]["spec"]
        return spec

    def check(self, found: dict[tuple[str, str], dict[str, Any]]) -> None:
        pod = self.pod(found)
        ports = {port["name"]: port["containerPort"] for each in pod["containers"] for port in each["ports"]}
        volumes = {volume["name"] for volume in pod["volumes"]} | {
            claim["metadata"]["name"] for claim in found["StatefulSet", "moed"]["spec"]["volumeClaimTemplates"]
        }
        for container in pod["containers"]:
            program = container.get("command", ["moed"])[0]
            flags = set(re.findall(r"^  (--[a-z-]+)", self.run_program(program, "--help").stdout, re.M))
            given = [argument for argument in container["args"] if argument.startswith("--")]
            self.assertGreater(len(given), 3)
            self.assertEqual(set(given) - flags, set(), program)
            value = dict(zip(container["args"], container["args"][1:], strict=False))
            drained = int(value["--drain-delay-seconds"]) + int(value["--drain-seconds"])
            self.assertGreater(pod["terminationGracePeriodSeconds"], drained)
            self.assertGreater(int(value["--drain-delay-seconds"]), 2 * container["readinessProbe"]["periodSeconds"])
            listened = {int(text.rpartition(":")[2]) for text in container["args"] if re.fullmatch(r"0\.0\.0\.0:\d+", text)}
            self.assertEqual(listened, {port["containerPort"] for port in container["ports"]})
            self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
            for mount in container.get("volumeMounts", []):
                self.assertIn(mount["name"], volumes)
        for container in pod["containers"]:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                asked = container.get(probe, {"httpGet": {"port": "http"}})
                self.assertIn(asked["grpc"]["port"] if "grpc" in asked else ports[asked["httpGet"]["port"]], ports.values())
        labels = found["StatefulSet", "moed"]["spec"]["template"]["metadata"]["labels"]
        for kind, name in found:
            spec = found[kind, name]["spec"]
            selector = spec.get("selector", spec.get("podSelector", {}))
            self.assertLessEqual(selector.get("matchLabels", selector).items(), labels.items(), f"{kind} {name}")
            for port in spec.get("ports", []):
                self.assertEqual(ports[port["targetPort"]], port["port"])
        for rule in found["NetworkPolicy", "moed"]["spec"]["ingress"]:
            self.assertTrue({port["port"] for port in rule["ports"]} <= set(ports))

    def test_the_base_is_kubernetes_and_fits_the_programs(self) -> None:
        self.validate("---\n".join(yaml.safe_dump(each) for each in base().values()), "base")
        self.check(base())

    def test_the_store_and_the_drain_commands_are_in_the_image(self) -> None:
        pod = self.pod(base())
        drain = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        self.assertEqual(self.run_program(drain[0], drain[-1], "--help").returncode, 0)
        script = pod["initContainers"][0]["command"][2]
        store, models = self.folder / "store", self.folder / "models"
        store.mkdir()
        models.mkdir()
        (store / "partial").write_text("interrupted")
        local = script.replace("/store/", f"{store}/").replace("/models/", f"{models}/")

        def start(source: str, seconds: int) -> int:
            """With a source of that text and time of change; the number of the pod's own file."""
            (models / "model.moed").write_text(source)
            os.utime(models / "model.moed", (seconds, seconds))
            subprocess.run(["sh", "-c", local], check=True)
            self.assertEqual(sorted(path.name for path in store.iterdir()), ["cache", "model.moed"])
            self.assertEqual((store / "model.moed").read_text(), source)
            return (store / "model.moed").stat().st_ino

        first = start("first", 1000)
        self.assertEqual(start("first", 1000), first, "it is copied once")
        self.assertNotEqual(start("other", 2000), first)
        start("a longer one", 2000)
        start("first", 1000)

    def test_the_endpoint_picker_asks_where_moed_listens(self) -> None:
        values = yaml.safe_load((FOLDER / "endpoint-picker.yaml").read_text())
        pool = values["inferencePool"]
        ports = {port["name"]: port["containerPort"] for each in self.pod(base())["containers"] for port in each["ports"]}
        self.assertEqual(pool["targetPorts"], [{"number": ports["http"]}])
        self.assertEqual(values["inferenceExtension"]["flags"]["model-server-metrics-port"], ports["metrics"])
        self.assertEqual(pool["modelServers"], base()["StatefulSet", "moed"]["spec"]["selector"])

    def test_what_is_scaled_by_is_a_metric(self) -> None:
        rules = yaml.safe_load((FOLDER / "adapter-rules.yaml").read_text())["rules"]["custom"]
        named = {rule.get("name", {}).get("as", rule["seriesQuery"].partition("{")[0]) for rule in rules}
        metrics = base()["HorizontalPodAutoscaler", "moed"]["spec"]["metrics"]
        self.assertEqual({metric["pods"]["metric"]["name"] for metric in metrics}, named)
        exported = "".join(path.read_text() for path in (ROOT / "server" / "metrics").glob("*.cc"))
        for rule in rules:
            self.assertIn(f'"{rule["seriesQuery"].partition("{")[0]}"', exported)

    def test_overlays_name_what_the_base_has(self) -> None:
        self.assertEqual({path.name for path in (FOLDER / "overlays").iterdir()}, set(OVERLAYS))
        for name in OVERLAYS:
            overlay = yaml.safe_load((FOLDER / "overlays" / name / "kustomization.yaml").read_text())
            self.assertEqual(overlay["resources"], ["../../base"])
            for patch in overlay["patches"]:
                self.assertIn((patch["target"]["kind"], patch["target"]["name"]), base())

    def test_secured_it_is_kubernetes_and_fits_the_programs(self) -> None:
        found = secured()
        self.validate("---\n".join(yaml.safe_dump(each) for each in found.values()), "secured")
        self.check(found)
        pod = self.pod(found)
        secrets = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
        self.assertEqual(secrets, {"moed-tls", "moed-tokens"})
        for container in pod["containers"]:
            self.assertNotIn("--insecure", container["args"])
            self.assertLessEqual({"--tls-cert", "--tls-key", "--tokens"}, set(container["args"]))
            self.assertNotIn("grpc", container["readinessProbe"])

    def test_secured_programs_serve_and_drain(self) -> None:
        """With the component's own arguments, and files in the place of its secrets."""
        pod = self.pod(secured())
        authority = Authority(self.folder, "cluster")
        pair = authority.issue("moed")
        files = {"/tls/tls.crt": pair.certificate, "/tls/tls.key": pair.key, "/tls/ca.crt": authority.certificate}
        files["/tokens/own"] = self.folder / "own"
        files["/tokens/own"].write_text(OWN)
        files["/tokens/tokens"] = write_tokens(self.folder / "tokens", ("pod", "observe,control", OWN), ("asker", "infer", ASKER))

        def given(words: list[str], flags: tuple[str, ...]) -> list[object]:
            """The arguments that are about who comes in."""
            pairs = [(flag, files.get(value, value)) for flag, value in itertools.pairwise(words) if flag in flags]
            return [word for each in pairs for word in each]

        flags = ("--tls-cert", "--tls-key", "--tokens", "--server-tls-ca", "--server-tls-name", "--server-token-file")
        of_daemon, of_front = (given(container["args"], flags) for container in pod["containers"])
        drain = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        client = given(drain, ("--tls-ca", "--tls-name", "--token-file"))
        store = pack_demo(self.binaries, self.folder, "q8", "q8")
        with self.running("--store", store, "--memory-budget", "64MiB", *of_daemon, client=client) as daemon:
            context = ssl.create_default_context(cafile=authority.certificate)
            with front_of(daemon, *of_front, context=context) as front:
                asked = {"model": "q8-q8", "prompt": "Once", "max_tokens": 2}
                self.assertEqual(front.post("/v1/completions", asked)[0], 401)
                status, answer = front.post("/v1/completions", asked, {"authorization": f"Bearer {ASKER}"})
                self.assertEqual(status, 200, answer)
            self.assertEqual(daemon.moectl("drain").returncode, 0)

    @staticmethod
    def kustomize() -> list[str] | None:
        found = shutil.which("kustomize")
        if found:
            return [found, "build"]
        kubectl = shutil.which("kubectl")
        if not kubectl:
            return None
        version = subprocess.run([kubectl, "version", "--client", "-o", "json"], capture_output=True, text=True).stdout
        merges = json.loads(version or "{}").get("kustomizeVersion", "v0")
        return [kubectl, "kustomize"] if merges.startswith("v5") else None

    def test_overlays_merged_are_kubernetes_and_fit_the_programs(self) -> None:
        command = self.kustomize()
        if command is None:
            self.skipTest("no kustomize 5 and no kubectl that has it")
        for name in OVERLAYS:
            merged = subprocess.run([*command, FOLDER / "overlays" / name], capture_output=True, text=True, check=True).stdout
            with self.subTest(name):
                self.validate(merged, name)
                self.check(documents(merged))


if __name__ == "__main__":
    main()
