"""Who is compared: a preset, what is replaced in it, and what its requests ask for. What there is says `moed --list`."""

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .. import CompareError
from ..server import Fidelity
from .ablations import CONTENDERS as ABLATION_NAMES

# What auto may lose in some further rows.
BOUNDS = ("bounded:0.1", "bounded:0.2", "bounded:0.4", "bounded:0.8")
# Who auto, being exact, is compared with beside the presets: another eviction alone, and the papers' systems where nothing may
# be lost, each also without its guesses.
EXACT_RIVALS = (
    "load-on-demand-lru+policy=lfu",
    "hobbit@exact",
    "hobbit+predictor=none@exact",
    "fate@exact",
    "fate+predictor=none@exact",
)
Named = tuple[str, str]  # a name and its value


@dataclass(frozen=True)
class Known:
    """What the daemon has: the parts of each preset with the options that it fixes, and the options of each part, by its kind."""

    presets: dict[str, dict[str, str]] = field(default_factory=dict)
    parts: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    @staticmethod
    def of(listing: str) -> "Known":
        known = Known(
            parts={kind: {} for kind in ("policy", "predictor", "fidelity-rule", "mask")} | {"fill-cache": {"on": [], "off": []}}
        )
        headings = {"policies": "policy", "predictors": "predictor", "fidelity rules": "fidelity-rule", "router masks": "mask"}
        kind, row = "", ""
        for line in listing.splitlines():
            words = line.split()
            if line and not line.startswith(" "):
                kind = "presets" if line.startswith("presets") else headings.get(line.split(" (")[0], "")
            elif kind == "presets" and words:
                parts = dict(re.findall(r"\b(policy|predictor|mask|rule) ([\w-]+)", line.rsplit("; ", 1)[1]))
                parts["fidelity-rule"] = parts.pop("rule")
                known.presets[words[0]] = parts | dict(re.findall(r", ([\w-]+)=([\w-]+)", line))
            elif kind and line.startswith("      "):
                known.parts[kind][row].append(words[0].split("=")[0])
            elif kind and words:
                row = words[0]
                known.parts[kind][row] = []
        return known

    @staticmethod
    def by(program: str) -> "Known":
        return Known.of(subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout)

    def check_preset(self, flag: str, name: str, sets: Sequence[str] = ()) -> None:
        if name not in self.presets:
            raise CompareError(f'{flag}: unknown preset "{name}"; known are: {", ".join([*sets, *self.presets])}')


@dataclass(frozen=True)
class Contender:
    """ "hobbit", "hobbit+policy=lru", "fate+fate-prefill-low=0.5", "auto+learned", "auto@bounded:0.2"."""

    preset: str
    parts: tuple[Named, ...] = ()  # flags of the daemon that replace parts of the preset
    options: tuple[Named, ...] = ()  # --preset-options of its own
    learned: bool = False  # every turn begins with what was learned on another text
    fidelity: str = ""  # "": requests do not say

    @property
    def name(self) -> str:
        changes = "".join(f"+{name}={value}" for name, value in self.parts + self.options)
        return f"{self.preset}{'+learned' * self.learned}{changes}{'@' * bool(self.fidelity)}{self.fidelity}"

    @property
    def plain(self) -> bool:
        return not self.parts and not self.options

    def asks(self) -> Fidelity | None:
        return parse_fidelity(self.fidelity) if self.fidelity else None

    def knows(self, known: Known, option: str) -> bool:
        """Whether the preset has, with its parts, an option of that name."""
        row = known.presets[self.preset]
        parts = (row | dict(self.parts)).items()
        return option not in row and any(option in known.parts[kind].get(name, ()) for kind, name in parts if kind in known.parts)

    def flags(self, options: Iterable[Named]) -> list[str]:
        """--preset and what goes with it."""
        flags = ["--preset", self.preset]
        for name, value in self.parts:
            flags += [f"--{name}", value]
        said = ",".join(f"{name}={value}" for name, value in options)
        return [*flags, "--preset-options", said] if said else flags


def parse_fidelity(text: str) -> Fidelity:
    if text in ("exact", "fast-matmul", "fast"):
        return text.upper().replace("-", "_"), 0
    bounded = re.fullmatch(r"bounded:(\d+(?:\.\d*)?|\.\d+)", text)
    if not bounded or float(bounded[1]) > 1:
        raise CompareError(f"--presets: fidelity '{text}': expected exact, fast-matmul, bounded:X with X from 0 to 1, or fast")
    return "BOUNDED", float(bounded[1])


def parse_named(text: str) -> Named | None:
    name, _, value = text.partition("=")
    return (name, value) if name and value else None


def parse_contender(known: Known, text: str) -> Contender:
    changed, _, fidelity = text.partition("@")
    preset, *changes = changed.split("+")
    known.check_preset("--presets", preset, ("all", "ablations"))
    replaceable = [kind for kind in known.parts if kind != "mask"]
    parts, options = list[Named](), list[Named]()
    for change in changes:
        named = parse_named(change)
        if change == "learned":
            continue
        if named is None:
            raise CompareError(
                f'--presets: "+{change}": expected PRESET[+learned][+NAME=VALUE...][@FIDELITY], NAME one of '
                f"{', '.join(replaceable)} or an option of the preset"
            )
        if named[0] in replaceable and named[1] not in known.parts[named[0]]:
            raise CompareError(f'--presets: unknown {named[0]} "{named[1]}"; known are: {", ".join(known.parts[named[0]])}')
        (parts if named[0] in replaceable else options).append(named)
    if fidelity or text.endswith("@"):
        parse_fidelity(fidelity)
    return Contender(preset, tuple(parts), tuple(options), "learned" in changes, fidelity)


def parse_contenders(known: Known, text: str) -> list[Contender]:
    """Names separated by commas. Two names are sets: "all" is every preset, auto with some bounds and with what it learned, and
    auto's exact rivals; "ablations" is everybody of ablations.py."""
    auto = ["auto", "auto+learned", *(f"auto@{bound}" for bound in BOUNDS)]
    sets = {
        "all": [name for preset in known.presets for name in (auto if preset == "auto" else [preset])] + list(EXACT_RIVALS),
        "ablations": ABLATION_NAMES,
    }
    contenders: dict[str, Contender] = {}
    for name in (name for given in text.split(",") for name in sets.get(given, [given])):
        contender = parse_contender(known, name)
        if contender.name in contenders:
            raise CompareError(f'--presets: "{contender.name}" is there twice')
        contenders[contender.name] = contender
    return list(contenders.values())


@dataclass(frozen=True)
class Given:
    """An option of --options or --plans: for every contender of that preset, or of all, that knows it."""

    preset: str  # "": all
    name: str
    value: str
    share: int = 0  # percent of the cell; 0: any

    def goes_to(self, known: Known, contender: Contender) -> bool:
        return self.preset in ("", contender.preset) and contender.knows(known, self.name)


def parse_options(known: Known, texts: Iterable[str]) -> list[Given]:
    """Of "[PRESET:]NAME=VALUE,..."."""
    found = []
    for text in texts:
        preset, colon, rest = text.partition(":")
        if not colon or "=" in preset:
            preset, rest = "", text
        else:
            known.check_preset("--options", preset)
        for one in rest.split(","):
            named = parse_named(one)
            if named is None:
                raise CompareError(f'--options "{text}": expected [PRESET:]NAME=VALUE,...')
            found.append(Given(preset, *named))
    return found


def check_options(known: Known, contenders: Sequence[Contender], given: Sequence[Given]) -> None:
    for one in given:
        if not any(one.goes_to(known, contender) for contender in contenders):
            raise CompareError(f'--options: no contender knows the option "{one.name}"')


def options_of(known: Known, contender: Contender, given: Sequence[Given], share: int) -> list[Named]:
    """What --preset-options has to say for the contender: its own, and of those given what it knows."""
    options = dict(contender.options)
    for one in given:
        if one.name not in options and one.share in (0, share) and one.goes_to(known, contender):
            options[one.name] = one.value.replace("{share}", str(share))
    return list(options.items())
