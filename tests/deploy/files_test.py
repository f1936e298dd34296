"""Reads the deployment files without running anything: they parse, they name files that exist, and they fit each other."""

import collections
import fnmatch
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
from collections.abc import Iterator

import yaml

from tools.daemon import ROOT

IO_URING = {"io_uring_setup", "io_uring_enter", "io_uring_register"}
DELAY_SECONDS, DRAIN_SECONDS = 2, 30  # as the programs have them
HTTP_MIB = 384  # what moed-http takes at most: tests/http/memory_test.py, docs/http.md
# Of what moed allows itself: what none of its calls is, and libraries may do without.
OUTSIDE_PROFILE = {"copy_file_range", "pwritev2", "rt_sigpending", "rt_sigsuspend", "sendfile"}
ONLY_MOED_HTTP = {"timerfd_create", "timerfd_gettime", "timerfd_settime"}  # which has its runtime's profile
# C libraries take futex; the others are @resources.
OUTSIDE_UNIT = {"futex_requeue", "futex_wait", "futex_wake", "sched_setaffinity", "sched_setscheduler", "setrlimit"}
# What no container of moed needs, and what would let a broken one reach the host.
FORBIDDEN = {
    "mount",
    "umount2",
    "pivot_root",
    "unshare",
    "setns",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "keyctl",
    "add_key",
    "init_module",
    "finit_module",
    "kexec_load",
    "reboot",
    "open_by_handle_at",
    "mknod",
    "mknodat",
    "chroot",
}


def own_calls() -> set[str]:
    """What moed allows itself by --sandbox."""
    table = re.search(r"kAllowed\[\] = \{(.*?)\};", (ROOT / "server" / "sandbox" / "system_calls.cc").read_text(), re.S)
    assert table
    return set(re.findall(r'"(\w+)"', table[1]))


def calls_of(names: list[str], sets: dict[str, list[str]]) -> set[str]:
    """As systemd reads them: names of calls, and of sets."""
    return {call for name in names for call in (calls_of(sets[name], sets) if name in sets else {name})}


class Systemd(unittest.TestCase):
    def setUp(self) -> None:
        self.units = {path.stem: self.settings(path) for path in (ROOT / "deploy" / "systemd").glob("*.service")}

    def settings(self, path: pathlib.Path) -> dict[str, list[str]]:
        """A key may stand several times."""
        found: dict[str, list[str]] = collections.defaultdict(list)
        for line in path.read_text().splitlines():
            if line and line[0] not in "#[":
                key, separator, value = line.partition("=")
                self.assertTrue(separator, f"{path.name}: {line}")
                found[key].append(value)
        return found

    def test_they_run_what_is_installed(self) -> None:
        installed = set(re.findall(r"/usr/bin/([a-z-]+)", (ROOT / "Dockerfile").read_text()))
        self.assertEqual(set(self.units), {"moed", "moed-http"})
        for name, unit in self.units.items():
            self.assertEqual(unit["ExecStart"], [f"/usr/bin/{name}"])
            self.assertIn(name, installed)
            self.assertIn("network-online.target", unit["Wants"])
            for target in unit["Wants"]:
                self.assertIn(target, unit["After"])
                self.assertIn(target, {"network-online.target", *(f"{name}.service" for name in self.units)})

    def test_they_are_tried_without_end_but_after_a_wrong_setting(self) -> None:
        for name, unit in self.units.items():
            told = (unit[key] for key in ("Restart", "RestartSec", "StartLimitIntervalSec", "RestartPreventExitStatus"))
            self.assertEqual([*told], [["on-failure"], ["5"], ["0"], ["2"]], name)

    def test_the_request_log_is_where_it_is_rotated(self) -> None:
        rotated = (ROOT / "deploy" / "debian" / "logrotate.conf").read_text()
        pattern = re.findall(r"^(/\S+) {$", rotated, re.M)
        self.assertEqual(pattern, [f"/var/log/{self.units['moed']['LogsDirectory'][0]}/*.log"])
        settings = (ROOT / "deploy" / "debian" / "moed.env").read_text()
        named = re.findall(r"^#MOED_REQUEST_LOG=(\S+)$", settings, re.M)
        self.assertTrue(fnmatch.fnmatchcase(named[0], pattern[0]), named)
        self.assertIn("systemctl try-reload-or-restart moed.service", rotated)
        self.assertIn("ExecReload", self.units["moed"])

    def test_both_are_confined_alike(self) -> None:
        confining = (
            "Protect",
            "Restrict",
            "Private",
            "SystemCall",
            "NoNew",
            "Lock",
            "Capability",
            "DynamicUser",
            "UMask",
            "RemoveIPC",
        )
        moed, http = (
            {key: value for key, value in self.units[name].items() if key.startswith(confining)} for name in ("moed", "moed-http")
        )
        self.assertGreater(len(moed), 20)
        self.assertEqual(http.pop("SystemCallFilter")[0], moed.pop("SystemCallFilter")[0])
        self.assertEqual(moed, http)
        self.assertEqual((moed["CapabilityBoundingSet"], moed["ProtectSystem"], moed["DynamicUser"]), ([""], ["strict"], ["yes"]))

    def test_what_moed_allows_itself_the_unit_allows(self) -> None:
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze")
        command = ["systemd-analyze", "syscall-filter", "--no-pager"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        sets: dict[str, list[str]] = {}
        for line in listed.splitlines():
            if line.startswith("@"):
                members = sets.setdefault(line, [])
            elif re.match(r"\s+[^\s#]", line):
                members.append(line.strip())
        allowed, refused = self.units["moed"]["SystemCallFilter"]
        unit = calls_of(allowed.split(), sets) - calls_of(refused.removeprefix("~").split(), sets)
        self.assertEqual((own_calls() & calls_of(["@known"], sets)) - unit - OUTSIDE_UNIT, set())

    def test_their_exposure_is_what_is_said(self) -> None:
        version = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=True).stdout
        if not version.startswith("systemd 252 "):
            self.skipTest("other versions count otherwise")
        said = re.search(r"exposure ([\d.]+) and ([\d.]+) of 10", (ROOT / "deploy" / "README.md").read_text())
        assert said
        for name, exposure in zip(("moed", "moed-http"), said.groups(), strict=True):
            unit = ROOT / "deploy" / "systemd" / f"{name}.service"
            command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            self.assertEqual(re.findall(rf"Overall exposure level for {name}.service: ([\d.]+)", told), [exposure])

    def test_moed_http_has_the_memory_that_it_may_take(self) -> None:
        self.assertGreater(int(self.units["moed-http"]["MemoryMax"][0].removesuffix("M")), HTTP_MIB)

    def test_they_have_time_to_drain(self) -> None:
        for name, unit in self.units.items():
            self.assertGreater(int(unit["TimeoutStopSec"][0]), DELAY_SECONDS + DRAIN_SECONDS, name)


class Compose(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = ROOT / "deploy"
        self.services = yaml.safe_load((self.folder / "compose.yaml").read_text())["services"]

    def host_paths(self) -> Iterator[str]:
        for service in self.services.values():
            yield from (volume.split(":")[0] for volume in service.get("volumes", []))
            yield from (option.split("=", 1)[1] for option in service.get("security_opt", []) if option.startswith("seccomp="))
            if "build" in service:
                yield str(pathlib.Path(service["build"]) / "Dockerfile")

    def test_host_paths_exist(self) -> None:
        paths = [path for path in self.host_paths() if path.startswith(".")]
        self.assertGreaterEqual(len(paths), 5)
        for path in paths:
            self.assertTrue((self.folder / path).exists(), path)

    def test_moed_is_confined(self) -> None:
        moed = self.services["moed"]
        self.assertTrue(moed["read_only"])
        for service in (moed, self.services["http"]):
            self.assertEqual(service["memswap_limit"], service["mem_limit"])
            self.assertGreater(service["pids_limit"], 0)
        self.assertGreater(int(self.services["http"]["mem_limit"].removesuffix("m")), HTTP_MIB)
        self.assertEqual(moed["cap_drop"], ["ALL"])
        self.assertIn("no-new-privileges:true", moed["security_opt"])
        self.assertGreater(moed["ulimits"]["memlock"], 0)

    def test_logs_are_bounded(self) -> None:
        for service in self.services.values():
            self.assertEqual(service["logging"], {"driver": "json-file", "options": {"max-size": "10m", "max-file": "5"}})

    def test_both_programs_have_the_health_check_of_the_image(self) -> None:
        for name in ("moed", "http"):
            self.assertNotIn("healthcheck", self.services[name])

    def test_what_listens_for_other_containers_says_that_it_is_open(self) -> None:
        moed = self.services["moed"]["environment"]
        self.assertEqual((moed["MOED_LISTEN"], moed["MOED_INSECURE"]), ("0.0.0.0:50051", "on"))
        self.assertIn("--insecure", self.services["http"]["command"])

    def test_the_image_listens_for_its_own_container_alone(self) -> None:
        self.assertNotRegex((ROOT / "Dockerfile").read_text(), "(?m)^ENV .*(MOED_LISTEN|MOED_INSECURE)=")

    def test_ports_are_local(self) -> None:
        for name, service in self.services.items():
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), f"{name}: {port}")

    def test_prometheus_scrapes_the_service_and_port_of_the_image(self) -> None:
        jobs = yaml.safe_load((self.folder / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
        targets = [target for job in jobs for config in job["static_configs"] for target in config["targets"]]
        exposed = re.findall(r"^EXPOSE (.*)$", (ROOT / "Dockerfile").read_text(), re.M)
        self.assertEqual(len(exposed), 1)
        self.assertTrue(targets)
        for target in targets:
            host, port = target.split(":")
            self.assertIn(host, self.services)
            self.assertIn(port, exposed[0].split())


class Image(unittest.TestCase):
    """Its context is what .dockerignore leaves."""

    def setUp(self) -> None:
        self.rules = (ROOT / ".dockerignore").read_text().split()

    def kept(self, path: pathlib.PurePath) -> bool:
        """The last rule that names the path or a folder above it decides."""
        kept = True
        for rule in self.rules:
            pattern = rule.removeprefix("!").replace("**/", "*")
            if any(fnmatch.fnmatchcase(str(above), pattern) for above in (path, *path.parents)):
                kept = rule.startswith("!")
        return kept

    def test_what_is_left_can_be_configured(self) -> None:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        with tempfile.TemporaryDirectory() as folder:
            context = pathlib.Path(folder)
            for name in filter(None, listed.split("\0")):
                if self.kept(pathlib.PurePath(name)):
                    (context / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / name, context / name)
            self.assertFalse((context / "tests").exists())
            self.assertTrue((context / "deploy" / "healthcheck.sh").exists())
            command = ["cmake", "--preset", "release", "-DMOED_BUILD_TESTS=OFF", "-DMOED_CUDA=OFF"]
            run = subprocess.run(command, cwd=context, capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)


class ComposeWithCuda(unittest.TestCase):
    def setUp(self) -> None:
        self.services = yaml.safe_load((ROOT / "deploy" / "compose.cuda.yaml").read_text())["services"]

    def test_it_differs_from_the_other_in_what_a_device_needs(self) -> None:
        plain = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
        differing = {
            "moed": {
                *("build", "image", "runtime", "group_add", "environment"),
                *("command", "security_opt", "mem_limit", "memswap_limit", "ulimits"),
            },
            "http": {"image", "environment"},
        }
        environment = {name: value for name, value in self.services["moed"]["environment"].items() if name != "LD_LIBRARY_PATH"}
        self.assertEqual(environment, plain["moed"]["environment"])
        for name, keys in differing.items():
            same = [{key: value for key, value in of[name].items() if key not in keys} for of in (self.services, plain)]
            self.assertEqual(*same)
            self.assertIn("no-new-privileges:true", self.services[name]["security_opt"])
        self.assertEqual(self.services["moed"]["runtime"], "nvidia")

    def test_on_a_jetson_it_may_open_the_devices_and_finds_the_driver(self) -> None:
        moed = self.services["moed"]
        groups = [re.fullmatch(r"\$\{(\w+):-(\d+)\}", group) for group in moed["group_add"]]
        self.assertEqual([group and group[1] for group in groups], ["MOED_VIDEO_GROUP", "MOED_RENDER_GROUP"])
        self.assertEqual(len({group and group[2] for group in groups}), 2, "compose refuses a list that has one twice")
        page = (ROOT / "docs" / "jetson.md").read_text()
        for name in ("MOED_VIDEO_GROUP", "MOED_RENDER_GROUP", "supplementalGroups", "getent group video render"):
            self.assertIn(name, page)
        overlay = ROOT / "deploy" / "kubernetes" / "overlays" / "jetson" / "kustomization.yaml"
        patch = yaml.safe_load(yaml.safe_load(overlay.read_text())["patches"][0]["patch"])
        added = {each["path"].removeprefix("/spec/template/spec/"): each["value"] for each in patch}
        self.assertIn(44, added["securityContext/supplementalGroups"])
        variables = {each["name"]: each["value"] for each in added["containers/0/env"]}
        self.assertEqual(variables["LD_LIBRARY_PATH"], moed["environment"]["LD_LIBRARY_PATH"])
        self.assertEqual(
            variables["LD_LIBRARY_PATH"].split(":"), [f"/usr/lib/aarch64-linux-gnu/{name}" for name in ("nvidia", "tegra")]
        )

    def test_the_dockerfile_takes_its_arguments(self) -> None:
        dockerfile = (ROOT / "Dockerfile").read_text()
        arguments = self.services["moed"]["build"]["args"]
        self.assertLessEqual(set(arguments), set(re.findall(r"^ARG (\w+)", dockerfile, re.M)))
        self.assertEqual(arguments["MOED_CUDA"], "ON")
        self.assertRegex(dockerfile, "(?m)^ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility$")


class Kubernetes(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = ROOT / "deploy" / "kubernetes"
        self.base = {}
        for path in (self.folder / "base").glob("*.yaml"):
            for each in yaml.safe_load_all(path.read_text()):
                self.base[each["kind"]] = each

    def test_who_scales_alone_says_how_many_replicas_there_are(self) -> None:
        self.assertNotIn("replicas", self.base["StatefulSet"]["spec"])
        for path in (self.folder / "overlays").glob("*/kustomization.yaml"):
            overlay = yaml.safe_load(path.read_text())
            patches = "".join(patch["patch"] for patch in overlay["patches"])
            scaled = "$patch: delete" not in patches
            self.assertNotIn("/spec/replicas", patches)
            self.assertEqual(overlay.get("replicas", []), [] if scaled else [{"name": "moed", "count": 1}], path.parent.name)

    def test_metrics_are_scraped_where_the_network_lets_prometheus_in(self) -> None:
        pod = self.base["StatefulSet"]["spec"]["template"]
        self.assertEqual(set(pod["metadata"]), {"labels"}, "an annotation would have a second job scrape it")
        ports = {port["name"] for container in pod["spec"]["containers"] for port in container["ports"]}
        rules = self.base["NetworkPolicy"]["spec"]["ingress"]
        let_in = [rule for rule in rules if any("namespaceSelector" in peer for peer in rule["from"])]
        self.assertEqual([port["port"] for port in let_in[0]["ports"]], ["metrics", "http"])
        jobs = yaml.safe_load((self.folder / "scrape.yaml").read_text())["scrape_configs"]
        label = pod["metadata"]["labels"]["app.kubernetes.io/name"]
        for job, port in zip(jobs, ("metrics", "http"), strict=True):
            self.assertIn(port, ports)
            kept = [rule for rule in job["relabel_configs"] if rule.get("action") == "keep"]
            self.assertEqual([rule["regex"] for rule in kept], [f"{label};{port}", "Running"], "who copies a store is not down")
            named = [rule["target_label"] for rule in job["relabel_configs"] if rule not in kept]
            self.assertEqual(named, ["namespace", "pod"])
        watched = re.findall(r'up{job="([\w-]+)"}', (ROOT / "deploy" / "prometheus" / "rules.yml").read_text())
        self.assertEqual([job["job_name"] for job in jobs], watched)


class Seccomp(unittest.TestCase):
    def setUp(self) -> None:
        self.profile = json.loads((ROOT / "deploy" / "seccomp" / "moed.json").read_text())
        self.allowed = {name for rule in self.profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}

    def test_is_an_allow_list_for_both_architectures(self) -> None:
        self.assertEqual(self.profile["defaultAction"], "SCMP_ACT_ERRNO")
        self.assertEqual(set(self.profile["architectures"]), {"SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"})
        self.assertLessEqual({rule["action"] for rule in self.profile["syscalls"]}, {"SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"})

    def test_allows_io_uring(self) -> None:
        self.assertLessEqual(IO_URING, self.allowed)

    def test_what_moed_allows_itself_it_allows(self) -> None:
        self.assertEqual(own_calls() - self.allowed, OUTSIDE_PROFILE | ONLY_MOED_HTTP)

    def test_keeps_the_host_out_of_reach(self) -> None:
        self.assertEqual(self.allowed & FORBIDDEN, set())

    def test_no_new_namespaces(self) -> None:
        clone_flags = 0x7E020000  # CLONE_NEWTIME is CSIGNAL's bit and only clone3's, which is refused
        rules = [rule for rule in self.profile["syscalls"] if "clone" in rule["names"]]
        self.assertEqual(
            [rule["args"] for rule in rules], [[{"index": 0, "value": clone_flags, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]]
        )
        refused = [rule for rule in self.profile["syscalls"] if "clone3" in rule["names"]]
        self.assertEqual([(rule["action"], rule["errnoRet"]) for rule in refused], [("SCMP_ACT_ERRNO", 38)])

    def test_sockets_of_known_families_only(self) -> None:
        rules = [rule for rule in self.profile["syscalls"] if "socket" in rule["names"]]
        self.assertEqual(sorted(rule["args"][0]["value"] for rule in rules), [1, 2, 10])


class Grafana(unittest.TestCase):
    def test_dashboards_parse_and_name_the_provisioned_datasource(self) -> None:
        folder = ROOT / "deploy" / "grafana"
        sources = yaml.safe_load((folder / "provisioning" / "datasources" / "prometheus.yml").read_text())["datasources"]
        uids = {source["uid"] for source in sources}
        dashboards = list((folder / "dashboards").glob("*.json"))
        self.assertTrue(dashboards)
        for path in dashboards:
            for panel in json.loads(path.read_text())["panels"]:
                self.assertIn(panel["datasource"]["uid"], uids, f"{path.name}: {panel['title']}")


class Upgrade(unittest.TestCase):
    """What docs/upgrade.md says of versions is what the code has."""

    def test_versions_of_files(self) -> None:
        page = (ROOT / "docs" / "upgrade.md").read_text()
        header = (ROOT / "core" / "store" / "header.h").read_text()
        numbers = {name: re.findall(rf"{name} = (\d+)", header) for name in ("kOneFormatVersion", "kCodedVersion")}
        self.assertEqual(numbers, {"kOneFormatVersion": ["1"], "kCodedVersion": ["3"]})
        self.assertIn("`MOEDSTOR`, 1 to 3:", page)
        learning = ROOT / "core" / "expert" / "learning"
        letters = re.findall(r"kMagic = {(.*)};", (learning / "learned_state.cc").read_text())
        learned = "".join(re.findall(r"'(.)'", letters[0]))
        self.assertIn(f"`{learned}`", page)
        residency = re.findall(r'kHeader = "(.*)"', (ROOT / "core" / "expert" / "residency_file.cc").read_text())
        self.assertIn(f"`{residency[0]}...`", page)
        dictionary = re.findall(r"kVersion = (\d+)", (learning / "activation_paths.cc").read_text())
        self.assertIn(f"`MOEDPATH`, {dictionary[0]} |", page)


if __name__ == "__main__":
    unittest.main()
