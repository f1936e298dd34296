"""Real chat templates give the same bytes as in Python's jinja2, on conversations of many kinds; where they fail, the same words.

The templates are those of the PyPI source package llama-cpp-python, downloaded into the build folder and not copied. There, a
virtual environment has jinja2. Without PyPI the test is skipped: it says why and ends with 77, which ctest counts so.
"""

import argparse
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

from tests.virtual_environment import exit_code, python_with, run

PACKAGE, VERSION = "llama_cpp_python", "0.3.36"
TEMPLATES = f"{PACKAGE}-{VERSION}/vendor/llama.cpp/models/templates"
REQUIREMENTS = ("jinja2==3.1.6", "markupsafe==3.0.3")
LEAST_TEMPLATES = 60

options = argparse.Namespace(build="", templates=[], verbose=False)


def real_templates(folder: Path, python: str) -> list[Path]:
    """The templates of the source package."""
    unpacked = folder / TEMPLATES
    if not unpacked.is_dir():
        archive = folder / f"{PACKAGE}-{VERSION}.tar.gz"
        wanted = f"{PACKAGE}=={VERSION}"
        pip = (python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
        run(*pip, "--no-deps", "--no-binary", PACKAGE.replace("_", "-"), "--dest", str(folder), wanted)
        run("tar", "--extract", "--file", str(archive), "--directory", str(folder), TEMPLATES)
        archive.unlink()
    return sorted(unpacked.glob("*.jinja"))


def lines(text: str) -> list[str]:
    """At line feeds alone: the texts have other line ends."""
    return text.rstrip("\n").split("\n")


def outcomes(cases: str) -> str:
    program = os.path.join(options.build, "tests", "render_cases")
    return subprocess.run([program], input=cases, capture_output=True, text=True, check=True).stdout


# Where the system may speak: (developers are known, one message leads alone, a later one is a user's, users alternate)
SYSTEM_FORMS = {
    "openai-gpt-oss-120b": (True, True, True, False),
    "Qwen3.5-4B": (False, True, True, False),
    "mistralai-Ministral-3-14B-Reasoning-2512": (False, True, True, True),
    "Qwen-Qwen3-0.6B": (False, False, False, False),
}


class ParityTest(unittest.TestCase):
    def test_where_the_system_may_speak_is_found_out(self) -> None:
        folder = Path(options.build) / "chat_parity"
        folder.mkdir(parents=True, exist_ok=True)
        files = {file.stem: file for file in real_templates(folder, python_with(folder, REQUIREMENTS))}
        found = outcomes("".join(json.dumps({"file": str(files[name])}) + "\n" for name in SYSTEM_FORMS))
        names = ("knows_developers", "leads_alone", "later_is_user", "users_alternate")
        forms = [tuple(json.loads(line)[name] for name in names) for line in lines(found)]
        self.assertEqual(dict(zip(SYSTEM_FORMS, forms, strict=True)), SYSTEM_FORMS)

    def test_real_templates_render_as_in_python(self) -> None:
        folder = Path(options.build) / "chat_parity"
        folder.mkdir(parents=True, exist_ok=True)
        python = python_with(folder, REQUIREMENTS)
        templates = [Path(path) for path in options.templates] or real_templates(folder, python)
        self.assertGreaterEqual(len(templates), 1 if options.templates else LEAST_TEMPLATES)
        cases = subprocess.run(
            [python, "-B", "-m", "tests.chat.parity_cases", *map(str, templates)], capture_output=True, text=True, check=True
        ).stdout
        rendered = outcomes(cases)
        different = []
        pairs = list(zip(lines(cases), lines(rendered), strict=True))
        for case_line, rendered_line in pairs:
            case, actual = json.loads(case_line), json.loads(rendered_line)
            if case["expected"].keys() == actual.keys() == {"refused"}:
                continue
            if case["expected"] != actual:
                different.append(f"{Path(case['file']).name}, {case['name']}:\n  {case['expected']}\n  {actual}")
        shown = "\n".join(different if options.verbose else different[:3])
        self.assertFalse(different, f"{len(different)} of {len(pairs)} are different:\n{shown}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, help="folder of the build")
    parser.add_argument("--templates", nargs="*", default=[], help="these instead of the package's")
    parser.add_argument("--all", action="store_true", help="show every difference")
    arguments = parser.parse_args()
    options.build, options.templates, options.verbose = os.path.abspath(arguments.build), arguments.templates, arguments.all
    outcome = unittest.main(argv=sys.argv[:1], exit=False).result
    sys.exit(exit_code(outcome))
