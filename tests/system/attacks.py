"""What hostile clients send, leave open and do not read. Each kind returns while what it opened is still open."""

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import grpc

from tests.system.http2_client import CONTINUATION, LARGEST_FRAME, PING, RST_STREAM, Http2Client, connect, frame, header, message

MIB = 1 << 20
WAIT_SECONDS = 60
LARGE = 3_900_000  # bytes: a little less than gRPC's usual limit on a message
INFERENCE = "/moe.v1.Inference/"

# A full queue; a connection that gRPC gives up for the memory of its buffers.
BUSY = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes(out) + bytes([value])


def nested(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


TEXT = nested(2, b"Once upon a time")
UNKNOWN_FIELD = 255


@dataclass(frozen=True)
class Tls:
    """Of clients; None in its place: they speak plain text."""

    context: ssl.SSLContext
    credentials: grpc.ChannelCredentials


def open_channel(address: str, tls: Tls | None, options: list[tuple[str, Any]], **more: Any) -> grpc.Channel:
    options = [("grpc.use_local_subchannel_pool", 1), *options]
    if tls is None:
        return grpc.insecure_channel(address, options=options, **more)
    return grpc.secure_channel(address, tls.credentials, options=options, **more)


class Attacker:
    """Its own channels and connections, closed in the end."""

    def __init__(self, address: str, tls: Tls | None):
        self._address = address
        self._tls = tls
        self._closing = contextlib.ExitStack()
        self._pool = self._closing.enter_context(futures.ThreadPoolExecutor(16))

    def close(self) -> None:
        self._closing.close()

    def channel(self, **options: Any) -> grpc.Channel:
        channel = open_channel(self._address, self._tls, [("grpc.max_receive_message_length", -1)], **options)
        self._closing.callback(channel.close)
        return channel

    def connection(self, window: int | None = None) -> Http2Client:
        connection = Http2Client(self._address, window, self._tls.context if self._tls else None)
        self._closing.callback(connection.close)
        return connection

    def socket(self) -> socket.socket:
        opened = connect(self._address)
        self._closing.callback(opened.close)
        return opened

    def send(self, method: str, body: bytes, calls: int, **options: Any) -> list[grpc.StatusCode]:
        """So many calls with the same bytes at once, on four channels; what became of them."""
        channels = [self.channel(**options) for _ in range(4)]
        waiting = []
        for i in range(calls):
            call = channels[i % 4].unary_unary(INFERENCE + method, request_serializer=bytes, response_deserializer=bytes)
            waiting.append(call.future(body, timeout=WAIT_SECONDS))
        return [call.code() for call in waiting]

    def at_once(self, work: Callable[[], None], times: int) -> None:
        for done in [self._pool.submit(work) for _ in range(times)]:
            with contextlib.suppress(OSError):
                done.result()


def refused(codes: list[grpc.StatusCode]) -> bool:
    """Nobody is served, and nobody hears of a broken server."""
    allowed = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED)
    return all(code in (*allowed, *BUSY) for code in codes)


def empty_stop_strings(attacker: Attacker) -> None:
    assert refused(attacker.send("Generate", TEXT + nested(6, b"\x1a\0" * 1_900_000), 16))


def stop_token_ids(attacker: Attacker) -> None:
    assert refused(attacker.send("Generate", TEXT + nested(6, nested(4, b"\1" * LARGE)), 16))


def logit_biases(attacker: Attacker) -> None:
    assert refused(attacker.send("Generate", TEXT + nested(5, nested(9, b"\x08\x01\x15\0\0\0\0") * 400_000), 16))


def one_long_word(attacker: Attacker) -> None:
    assert refused(attacker.send("Tokenize", nested(1, b"x" * LARGE), 8))


def words_as_long_as_allowed(attacker: Attacker) -> None:
    attacker.send("Tokenize", nested(1, (b"x" * 65_000 + b" ") * 16), 16)


def as_many_tokens_as_allowed(attacker: Attacker) -> None:
    attacker.send("Tokenize", nested(1, b"a1" * 500_000), 16)


def ids_to_text(attacker: Attacker) -> None:
    assert refused(attacker.send("Detokenize", nested(1, b"\x64" * 1_000_000), 16))


def long_prompts(attacker: Attacker) -> None:
    for word in (b"Once upon a time ", b" ", "\u4e16".encode()):
        assert refused(attacker.send("Generate", nested(2, word * (LARGE // len(word))), 8))


def messages_far_too_large(attacker: Attacker) -> None:
    assert refused(attacker.send("Generate", nested(2, bytes(48 * MIB)), 4))


def many_ids(attacker: Attacker) -> None:
    assert refused(attacker.send("Score", nested(3, nested(1, b"\1" * LARGE)), 16))


def padding(attacker: Attacker) -> None:
    assert refused(attacker.send("GenerateStream", TEXT + nested(UNKNOWN_FIELD, b"x" * LARGE), 72))


def unknown_numbers(attacker: Attacker) -> None:
    assert refused(attacker.send("Generate", TEXT + b"\x78\1" * (LARGE // 2), 16))


def nesting(attacker: Attacker) -> None:
    for body in (b"\x7b" * LARGE, b"\x32\x04\x3a\x02\x32\0" * (LARGE // 6)):
        assert refused(attacker.send("Generate", TEXT + body, 8))


def text_that_is_not_utf8(attacker: Attacker) -> None:
    assert refused(attacker.send("Generate", nested(2, b"\xff" * LARGE), 8))
    assert refused(attacker.send("Generate", nested(2, b"\xff" * 100), 8))


def compressed(attacker: Attacker) -> None:
    assert refused(attacker.send("Generate", TEXT + nested(UNKNOWN_FIELD, bytes(48 * MIB)), 4, compression=grpc.Compression.Gzip))


def metadata(attacker: Attacker) -> None:
    def send() -> None:
        connection = attacker.connection()
        for _ in range(64):
            connection.open_stream(INFERENCE + "Generate", header("x-large", b"x" * 7000))

    attacker.at_once(send, 32)


def headers_of_an_advisory(attacker: Attacker) -> None:
    """CVE-2023-1428: gRPC may end the process at these, with more than 8 KB behind them."""
    large = header("x-large", b"x" * 9000)
    for te, scheme, more in (
        (b"x", b"http", b""),
        (b"trailers", b"x", b""),
        (b"trailers", b"http", header("grpclb_client_stats", b"x")),
    ):
        for tail in (b"", large):
            connection = attacker.connection()
            with contextlib.suppress(OSError):  # closed by the server
                for _ in range(20):
                    connection.open_stream(INFERENCE + "Generate", more + tail, scheme=scheme, te=te)


def idle_connections(attacker: Attacker) -> None:
    for _ in range(3000):
        attacker.socket()


def half_a_handshake(attacker: Attacker) -> None:
    hello = bytes.fromhex("1603010200010001fc0303") + bytes(200)
    for _ in range(1000):
        with contextlib.suppress(OSError):
            attacker.socket().sendall(hello)


def connections_that_say_hello(attacker: Attacker) -> None:
    def open_some() -> None:
        for _ in range(100):
            with contextlib.suppress(OSError):
                attacker.connection()

    attacker.at_once(open_some, 16)


def streams_without_a_message(attacker: Attacker) -> None:
    def open_some() -> None:
        connection = attacker.connection()
        for _ in range(250):
            connection.open_stream(INFERENCE + "Generate")

    attacker.at_once(open_some, 8)


def messages_without_an_end(attacker: Attacker) -> None:
    def send() -> None:
        connection = attacker.connection()
        for _ in range(4):
            stream = connection.open_stream(INFERENCE + "Generate")
            connection.send_data(stream, message(b"x" * 1_000_000, announced=LARGE), end=False)

    attacker.at_once(send, 16)


def headers_without_an_end(attacker: Attacker) -> None:
    """CVE-2023-33953's kind: fields of five bytes, which gRPC keeps as more."""
    fields = header("x", b"y") * (LARGEST_FRAME // 5)

    def send() -> None:
        connection = attacker.connection()
        stream = connection.open_stream(INFERENCE + "Generate", flags=0)
        for _ in range(256):
            connection.send(CONTINUATION, 0, stream, fields)

    attacker.at_once(send, 16)


def calls_and_then_headers_without_an_end(attacker: Attacker) -> None:
    """What whole messages have paid for is not paid for once more."""
    fields = header("x", b"y") * (LARGEST_FRAME // 5)

    def send() -> None:
        connection = attacker.connection()
        for _ in range(100):
            connection.finish_calls(INFERENCE + "Detokenize", 20)
        stream = connection.open_stream(INFERENCE + "Generate", flags=0)
        for _ in range(256):
            connection.send(CONTINUATION, 0, stream, fields)

    attacker.at_once(send, 2)


def pings_whose_answers_nobody_reads(attacker: Attacker) -> None:
    pings = frame(PING, 0, 0, bytes(8)) * 1000

    def send() -> None:
        connection = attacker.connection()
        for _ in range(200):
            connection.socket.sendall(pings)

    attacker.at_once(send, 16)


def streams_reset_at_once(attacker: Attacker) -> None:
    def open_and_reset() -> None:
        connection = attacker.connection()
        for _ in range(500):
            stream = connection.open_stream(INFERENCE + "GenerateStream")
            connection.send(RST_STREAM, 0, stream, struct.pack(">I", 8))

    attacker.at_once(open_and_reset, 8)


def answers_of(attacker: Attacker, method: str, body: bytes, calls: int) -> None:
    """On streams whose windows stay shut."""

    def ask() -> None:
        connection = attacker.connection(window=0)
        for _ in range(calls // 8):
            connection.call(INFERENCE + method, body)

    attacker.at_once(ask, 8)


def answers_that_nobody_reads(attacker: Attacker) -> None:
    stopping = nested(6, b"\x08\x40\x30\1")  # 64 tokens, ignore_eos
    answers_of(attacker, "Generate", TEXT + stopping, 64)
    answers_of(attacker, "GenerateStream", TEXT + stopping, 64)


def tokens_that_nobody_reads(attacker: Attacker) -> None:
    answers_of(attacker, "Tokenize", nested(1, b"Once upon a time there was " * 20_000), 128)


def alternatives(attacker: Attacker) -> None:
    wide = nested(7, b"\x08\1\x10\x14") + nested(6, b"\x08\x40\x30\1")  # 20 for each of 64 tokens
    attacker.send("Generate", TEXT + wide, 32)
    answers_of(attacker, "GenerateStream", TEXT + wide, 64)


def scored_alternatives(attacker: Attacker) -> None:
    body = nested(2, b"Once upon a time there was a little girl. " * 8) + b"\x30\x14"
    attacker.send("Score", body, 32)
    answers_of(attacker, "Score", body, 32)


def said(text: bytes) -> bytes:
    return nested(2, nested(1, b"user") + nested(2, nested(1, text)))


HI = said(b"hi")


def many_messages(attacker: Attacker) -> None:
    assert refused(attacker.send("Chat", said(b"") * (1_100_000 // len(said(b""))), 16))
    attacker.send("Chat", said(b"x" * 500) * 2048, 16)


def many_parts_and_calls(attacker: Attacker) -> None:
    for fields in (nested(2, b"") * 500_000, nested(4, b"") * 500_000):
        assert refused(attacker.send("Chat", nested(2, nested(1, b"assistant") + fields), 8))


def deep_variables(attacker: Attacker) -> None:
    for json in (b"[" * 60_000, b'{"x": ' + b"[" * 90 + b"]" * 90 + b"}", b'{"x": [' + b"[],{}," * 10_000 + b"0]}"):
        attacker.send("Chat", HI + nested(10, json), 16)


def huge_tools(attacker: Attacker) -> None:
    schema = b'{"x": [' + b'{"a":0},' * 4_000 + b"0]}"
    attacker.send("ChatStream", HI + nested(3, nested(1, b"f") + nested(3, schema)) * 30, 16)
    assert refused(attacker.send("Chat", HI + nested(3, b"\x0a\x01f") * 100_000, 8))


def conversations_as_long_as_allowed(attacker: Attacker) -> None:
    attacker.send("Chat", said(b"a1 " * 300_000), 16)
    attacker.send("Chat", said(b"x" * 65_000) * 16, 16)


def formats(attacker: Attacker) -> None:
    """Schemas and expressions that are deep, explode when compiled, or explode when followed."""
    for schema in (b'{"items":' * 7_000, b'{"type":"string","minLength":65000}'):
        assert refused(attacker.send("Generate", TEXT + nested(12, nested(1, schema)), 16))
    many = b",".join(b"%d" % (i * 7919 % 99_991) for i in range(10_000))
    deep = b",".join(b'"%s"' % (b"a" * i) for i in range(350))
    for values in (b"1," * 30_000 + b"1", many, deep):
        attacker.send("Generate", TEXT + nested(12, nested(1, b'{"enum":[' + values + b"]}")), 16)
    for regex in (b"(" * 60_000, b"((a{1000}){1000}){1000}", b"x" * 70_000):
        assert refused(attacker.send("Generate", TEXT + nested(12, nested(2, regex)), 16))
    for regex in (b"[a-z]{9000}", b"(a|b)*a(a|b){400}", b"(((a{0,200}){0,20})(a|b)*)*b", b"([a-zA-Z ]{1,40} ){2,30}"):
        attacker.send("Generate", TEXT + nested(12, nested(2, regex)), 16)
    any_object = nested(12, b"\x18\x01")
    attacker.send("Generate", TEXT + any_object, 16)
    attacker.send("Chat", HI + nested(11, b"\x18\x01"), 16)


KINDS: tuple[Callable[[Attacker], None], ...] = (
    empty_stop_strings,
    stop_token_ids,
    logit_biases,
    one_long_word,
    words_as_long_as_allowed,
    as_many_tokens_as_allowed,
    ids_to_text,
    long_prompts,
    many_ids,
    unknown_numbers,
    nesting,
    text_that_is_not_utf8,
    compressed,
    headers_of_an_advisory,
    idle_connections,
    connections_that_say_hello,
    streams_without_a_message,
    answers_that_nobody_reads,
    tokens_that_nobody_reads,
    alternatives,
    scored_alternatives,
    many_messages,
    many_parts_and_calls,
    deep_variables,
    huge_tools,
    conversations_as_long_as_allowed,
    formats,
    messages_far_too_large,
    padding,
    metadata,
    messages_without_an_end,
    headers_without_an_end,
    calls_and_then_headers_without_an_end,
    pings_whose_answers_nobody_reads,
    streams_reset_at_once,
)


# Through TLS, each connection of which holds more.
ENCRYPTED: tuple[Callable[[Attacker], None], ...] = (
    idle_connections,
    half_a_handshake,
    connections_that_say_hello,
    streams_without_a_message,
    answers_that_nobody_reads,
    tokens_that_nobody_reads,
    long_prompts,
    one_long_word,
    many_messages,
)


# Over a unix socket, whose clients have no names, at Control.
UNIX: tuple[Callable[[Attacker], None], ...] = (
    connections_that_say_hello,
    headers_without_an_end,
    pings_whose_answers_nobody_reads,
)
