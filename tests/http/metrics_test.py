"""GET /metrics: what moed-http tells Prometheus of its requests."""

import os
import re
import subprocess
import time

from tests.http.front import Front, front_of, front_of_nobody
from tests.http.served import ServedTest
from tests.real_programs import main
from tests.tokens import write_tokens
from tools.daemon import ROOT
from tools.metrics_page import families
from tools.server_process import wait_until

OBSERVER, ASKER = "observer-of-sixteen-characters", "asker-of-sixteen-characters"
MODEL = "q8-q8"  # as pack_demo calls the store
WAIT_SECONDS = 60


class MetricsTest(ServedTest):
    def wait_for_count(self, front: Front, route: str, status: int, count: int) -> None:
        """A request is counted once its answer has ended, which its client may know before."""
        series = f'moe_http_requests_total{{route="{route}",status="{status}"}}'
        wait_until(lambda: front.metric(series) == count, series, WAIT_SECONDS)

    def test_requests_are_counted_by_route_and_status(self) -> None:
        with front_of(self.daemon) as front:
            asked = {"model": MODEL, "prompt": "Once", "max_tokens": 3}
            for _ in range(2):
                self.assertEqual(front.post("/v1/completions", asked)[0], 200)
            self.assertEqual(front.post("/v1/completions", {**asked, "temperature": -1})[0], 400)
            with front.stream("/v1/completions", {**asked, "stream": True}) as answer:
                answer.read()
            for path in ("/v1/nothing", "/v1/completions/x", "/another?secret"):
                self.assertEqual(front.get(path)[0], 404)
            self.assertEqual(front.get(f"/v1/models/{MODEL}")[0], 200)
            self.wait_for_count(front, "/v1/completions", 200, 3)
            self.wait_for_count(front, "/v1/completions", 400, 1)
            self.wait_for_count(front, "other", 404, 3)
            self.wait_for_count(front, "/v1/models/", 200, 1)
            page = front.metrics()
            for histogram in ("moe_http_request_seconds", "moe_http_first_byte_seconds"):
                self.assertIn(f'{histogram}_count{{route="/v1/completions"}} 4', page)
            self.assertGreater(front.metric("moe_http_request_bytes_total"), 4 * 40)
            self.assertGreater(front.metric("moe_http_reply_bytes_total"), 4 * 100)
            self.assertNotIn("secret", page)

    def test_a_client_that_leaves_is_counted(self) -> None:
        with front_of(self.daemon) as front:
            with front.stream("/v1/completions", {"model": MODEL, "prompt": "Once", "max_tokens": 100, "stream": True}) as answer:
                answer.read(1)
            wait_until(lambda: front.metric("moe_http_clients_gone_total") == 1, "it to be counted", WAIT_SECONDS)
            self.wait_for_count(front, "/v1/completions", 200, 1)

    def test_it_is_what_the_page_says_and_prometheus_takes(self) -> None:
        with front_of(self.daemon) as front:
            front.get("/healthz")
            self.wait_for_count(front, "/healthz", 200, 1)
            page = front.metrics()
        checked = subprocess.run(["promtool", "check", "metrics"], input=page, text=True, capture_output=True)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))
        told = (ROOT / "docs" / "http.md").read_text()
        own = {name: family for name, family in families(page).items() if name.startswith("moe_http_")}
        for name, family in own.items():
            labels = ", ".join(f"`{label}`" for label in sorted(family.labels))
            self.assertIn(f"| `{name}` | {family.type} | {labels} |", told)
        self.assertEqual(set(re.findall(r"^\| `(moe_http_\w+)`", told, re.M)), set(own))
        of_daemons = (ROOT / "docs" / "metrics.md").read_text()
        for name in families(page).keys() - own.keys():
            self.assertIn(f"| `{name}` |", of_daemons)

    def test_its_own_process(self) -> None:
        with front_of(self.daemon) as front:
            open_files = len(os.listdir(f"/proc/{front.pid}/fd"))
            self.assertAlmostEqual(front.metric("process_open_fds"), open_files, delta=3)  # connections come and go
            self.assertLess(abs(time.time() - front.metric("process_start_time_seconds")), WAIT_SECONDS)
            self.assertGreater(front.metric("process_resident_memory_bytes"), 1 << 20)

    def test_whether_the_daemon_serves(self) -> None:
        with front_of(self.daemon) as front:
            self.assertEqual(front.metric("moe_http_daemon_serves"), 1)
        with front_of_nobody(self.binaries) as front:
            self.assertEqual(front.metric("moe_http_daemon_serves"), 0)

    def test_strangers_get_none(self) -> None:
        tokens = write_tokens(self.folder / "tokens", ("observer", "observe", OBSERVER), ("asker", "infer", ASKER))
        with front_of_nobody(self.binaries, "--tokens", tokens) as front:
            for token, status in ((None, 401), (ASKER, 403), (OBSERVER, 200)):
                headers = {} if token is None else {"authorization": f"Bearer {token}"}
                self.assertEqual(front.get("/metrics", headers)[0], status)


if __name__ == "__main__":
    main()
