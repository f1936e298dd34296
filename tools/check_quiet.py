"""What passing tests printed beside their runners' own lines, from the file that ctest --output-junit wrote."""

import re
import sys
import xml.etree.ElementTree

# GoogleTest's and unittest's.
RUNNER = re.compile(
    r"""\[[ =\-A-Z]{10}\]
      | Running\ main\(\)\ from
      | Note:\ Google\ Test\ filter
      | Note:\ Randomizing
      | Repeating\ all\ tests
      | [.s]+$
      | -+$
      | Ran\ \d+\ tests?\ in
      | OK\b
      | $""",
    re.VERBOSE,
)

# Where a test was skipped, and the reason that it gives.
SKIP = re.compile(r"^\S+:\d+: Skipped\n(?!\[).*\n", re.MULTILINE)


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: check_quiet.py TESTS.XML", file=sys.stderr)
        return 2
    tests = xml.etree.ElementTree.parse(sys.argv[1]).getroot().findall("testcase")
    if not tests:
        print(f"{sys.argv[1]} holds no tests")
        return 1
    loud = 0
    for test in tests:
        said = SKIP.sub("", test.findtext("system-out") or "")
        own = [line for line in said.splitlines() if not RUNNER.match(line)]
        if own and test.get("status") == "run":
            loud += 1
            print(f"{test.get('name')} printed: {own[0]}")
    if not loud:
        print(f"{len(tests)} tests printed nothing of their own")
    return 1 if loud else 0


if __name__ == "__main__":
    sys.exit(main())
