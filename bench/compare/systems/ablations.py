"""What each part of a preset gives: pairs of contenders, with the part and without it, as the papers' own ablations take them
apart."""

from typing import NamedTuple


class Ablation(NamedTuple):
    system: str
    part: str
    of: str  # contenders
    without: str
    source: str  # the paper's figure, or "own"


WIDTHS = "load-on-demand+fidelity-rule=widths"
PATHS = WIDTHS + "+predictor=activation-path"

ABLATIONS = [
    # EdgeMoE adds its three parts to loading on demand one after the other; policies are compared without preloading.
    Ablation("EdgeMoE", "widths of its own for every expert", WIDTHS, "load-on-demand", "fig. 18, Q"),
    Ablation("EdgeMoE", "preloading, no cache", PATHS, WIDTHS, "fig. 18, P"),
    Ablation("EdgeMoE", "the buffer", "edgemoe", PATHS, "fig. 18, C"),
    Ablation("EdgeMoE", "widths of its own for every expert, of the whole", "edgemoe", "edgemoe+fidelity-rule=exact", "own"),
    Ablation("EdgeMoE", "preloading, of the whole", "edgemoe", "edgemoe+predictor=none", "own"),
    *(
        Ablation(
            "EdgeMoE",
            f"its eviction instead of {said}",
            "edgemoe+predictor=none",
            f"edgemoe+policy={policy}+predictor=none",
            source,
        )
        for said, policy, source in (
            ("lru", "lru", "fig. 14"),
            ("lfu", "lfu", "fig. 14"),
            ("fifo", "fifo", "fig. 14"),
            ("the printed one", "edgemoe-printed", "own"),
        )
    ),
    Ablation("HOBBIT", "low precision and skipping", "hobbit", "hobbit+fidelity-rule=exact", "fig. 16"),
    Ablation("HOBBIT", "prefetching", "hobbit", "hobbit+predictor=none", "fig. 17b, both precisions"),
    Ablation(
        "HOBBIT",
        "prefetching",
        "hobbit+fidelity-rule=exact",
        "hobbit+predictor=none+fidelity-rule=exact",
        "fig. 17b, one precision",
    ),
    Ablation("HOBBIT", "three layers ahead instead of one", "hobbit", "hobbit+stacked-gate-layers=1", "fig. 17b, p"),
    *(
        Ablation("HOBBIT", f"its eviction instead of {policy}", "hobbit", f"hobbit+policy={policy}", "fig. 18a")
        for policy in ("lru", "lfu", "random")
    ),
    Ablation("SwapMoE", "importance instead of the number of tokens", "swapmoe", "swapmoe-tokens", "fig. 13, simple scheduling"),
    Ablation("SwapMoE", "planned slots instead of equal ones", "swapmoe", "swapmoe-equal", "fig. 13, simple planning"),
    Ablation("SwapMoE", "swapping at all", "swapmoe", "swapmoe-pruning", "fig. 10"),
    # Fate adds its parts to loading on demand one after the other.
    Ablation("Fate", "prefetching, no cache", "load-on-demand+predictor=fate", "load-on-demand", "fig. 14, prefetch"),
    Ablation("Fate", "the cache", "fate+fidelity-rule=exact", "load-on-demand+predictor=fate", "fig. 14, cache"),
    Ablation("Fate", "the low precision", "fate", "fate+fidelity-rule=exact", "fig. 14, quantization"),
    Ablation("Fate", "prefetching, of the whole", "fate", "fate+predictor=none", "own"),
    Ablation("Fate", "its cache instead of lru", "fate", "fate+policy=lru", "own"),
    Ablation("auto", "look-ahead", "auto", "auto+predictor=none", "own"),
    Ablation("auto", "learned eviction instead of lru", "auto", "auto+policy=lru", "own"),
    Ablation("auto", "both", "auto", "auto+policy=lru+predictor=none", "own"),
    Ablation("auto", "the cache filled while the disk is idle", "auto", "auto+fill-cache=off", "own"),
    Ablation("auto", "what it learned before", "auto+learned", "auto", "own"),
]

CONTENDERS = list(dict.fromkeys(name for row in ABLATIONS for name in (row.of, row.without)))
