"""What answers to span infilling say, and how much of it is right."""

PAD, END = 0, 1  # <unk> is 2
FIRST_SENTINEL = 3  # <extra_id_0>; the others follow
SPANS = 4  # of an example


def until_end(answer: list[int]) -> list[int]:
    return answer[: answer.index(END)] if END in answer else answer


def spans_of(target: list[int]) -> dict[int, list[int]]:
    """What an answer says of each span, by its number; nothing of what it never names."""
    spans: dict[int, list[int]] = {}
    current: list[int] | None = None
    for token in until_end(target):
        if FIRST_SENTINEL <= token < FIRST_SENTINEL + SPANS:
            current = spans.setdefault(token - FIRST_SENTINEL, [])
        elif current is not None:
            current.append(token)
    return spans


def correct_tokens(answer: list[int], target: list[int]) -> int:
    """How many of a target's masked tokens the answer has at the same place of the same span."""
    answered = spans_of(answer)
    return sum(
        said == meant
        for span, tokens in spans_of(target).items()
        for said, meant in zip(answered.get(span, []), tokens, strict=False)
    )
