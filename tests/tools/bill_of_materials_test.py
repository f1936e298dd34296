"""tools/bill_of_materials.py names what the daemon is made of."""

import json
import subprocess

from tests.real_programs import RealProgramsTest, main
from tools.daemon import ROOT

TOOL = ROOT / "tools" / "bill_of_materials.py"


class BillTest(RealProgramsTest):
    def test_it_has_what_is_loaded_and_what_was_compiled_in(self) -> None:
        command = ["/usr/bin/python3", str(TOOL), "--build", str(self.binaries.parent), str(self.binaries / "moed")]
        bill = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.4"))
        used = {part["name"]: part["properties"][0]["value"] for part in bill["components"]}
        for name, use in (("libgrpc29", "loaded"), ("libc6", "loaded"), ("libcli11-dev", "compiled in")):
            self.assertEqual(used.get(name), use, used)
        for part in bill["components"]:
            installed = subprocess.run(
                ["dpkg-query", "-W", "-f", "${Version}", part["bom-ref"]], check=True, capture_output=True, text=True
            )
            self.assertEqual(part["version"], installed.stdout)
        references = [part["bom-ref"] for part in bill["components"]]
        self.assertEqual(len(references), len(set(references)))

    def test_what_cannot_be_read_is_named(self) -> None:
        run = subprocess.run(["/usr/bin/python3", TOOL, "/no/program"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("/no/program", run.stderr)


if __name__ == "__main__":
    main()
