"""An HTTP/2 connection without gRPC's manners: frames as a test wants them."""

import contextlib
import socket
import ssl
import struct

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE = 4  # a setting
LARGEST_FRAME = 16384


def integer(value: int) -> bytes:
    """HPACK's, with a prefix of seven bits."""
    if value < 127:
        return bytes([value])
    out, value = bytearray([127]), value - 127
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes(out) + bytes([value])


def header(name: str, value: bytes) -> bytes:
    """Literal, and not put into the table."""
    return b"\0" + integer(len(name)) + name.encode() + integer(len(value)) + value


def message(body: bytes, announced: int | None = None) -> bytes:
    """gRPC's framing of a message that is not compressed."""
    return b"\0" + struct.pack(">I", len(body) if announced is None else announced) + body


def request_headers(method: str, scheme: bytes = b"http", te: bytes = b"trailers") -> bytes:
    fields = [(":method", b"POST"), (":scheme", scheme), (":path", method.encode()), (":authority", b"moed")]
    fields += [("te", te), ("content-type", b"application/grpc")]
    return b"".join(header(*field) for field in fields)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def connect(address: str, receive_buffer: int | None = None) -> socket.socket:
    unix = address.startswith("unix:")
    connected = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
    with contextlib.ExitStack() as unless_connected:
        unless_connected.callback(connected.close)
        connected.settimeout(5)
        if receive_buffer is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        host, port = address.rsplit(":", 1)
        connected.connect(address.removeprefix("unix:") if unix else (host, int(port)))
        unless_connected.pop_all()
    return connected


class Http2Client:
    """Streams are numbered 1, 3, 5, ... What the server sends is read only where a window has to open."""

    def __init__(
        self, address: str, window: int | None = None, tls: ssl.SSLContext | None = None, receive_buffer: int | None = None
    ):
        """`address`: HOST:PORT or unix:PATH. `window`: what the server may send on each stream. `receive_buffer`: in all."""
        plain = connect(address, receive_buffer)
        self.socket = tls.wrap_socket(plain, server_hostname="localhost") if tls else plain
        self._next_stream = 1
        self._windows: dict[int, int] = {0: 65535}
        self._stream_window = 65535
        self._reset: set[int] = set()
        self._ended: set[int] = set()
        self._unread = b""
        settings = b"" if window is None else struct.pack(">HI", INITIAL_WINDOW_SIZE, window)
        with contextlib.ExitStack() as unless_greeted:
            unless_greeted.callback(self.close)
            self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            self.send(SETTINGS, 0, 0, settings)
            unless_greeted.pop_all()

    def close(self) -> None:
        self.socket.close()

    def send(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self.socket.sendall(frame(kind, flags, stream, payload))

    def open_streams(self, method: str, count: int) -> None:
        """By headers alone, in one piece."""
        fields = request_headers(method)
        first, self._next_stream = self._next_stream, self._next_stream + 2 * count
        streams = range(first, self._next_stream, 2)
        self.socket.sendall(b"".join(frame(HEADERS, END_HEADERS, stream, fields) for stream in streams))

    def open_stream(
        self, method: str, more: bytes = b"", flags: int = END_HEADERS, scheme: bytes = b"http", te: bytes = b"trailers"
    ) -> int:
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._windows[stream] = self._stream_window
        self.send(HEADERS, flags, stream, request_headers(method, scheme, te) + more)
        return stream

    def send_data(self, stream: int, data: bytes, end: bool) -> int:
        """Bytes that the server let it send."""
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < len(data) and stream not in self._reset:
                room = min(self._windows[0], self._windows[stream], LARGEST_FRAME)
                if room <= 0:
                    self._read_frame()
                    continue
                piece = data[sent : sent + room]
                sent += len(piece)
                self._windows[0] -= len(piece)
                self._windows[stream] -= len(piece)
                self.send(DATA, END_STREAM if end and sent == len(data) else 0, stream, piece)
        return sent

    def wait_for_end(self, stream: int) -> None:
        """Until the server has ended or reset it."""
        while stream not in self._ended | self._reset:
            self._read_frame()

    def call(self, method: str, body: bytes) -> int:
        """Everything that a unary call sends. The stream."""
        stream = self.open_stream(method)
        self.send_data(stream, message(body), end=True)
        return stream

    def finish_calls(self, method: str, count: int) -> None:
        """So many with an empty message, in one piece, and until each has ended; no settings are acknowledged."""
        fields = request_headers(method)
        first, self._next_stream = self._next_stream, self._next_stream + 2 * count
        asked = (
            frame(HEADERS, END_HEADERS, stream, fields) + frame(DATA, END_STREAM, stream, message(b""))
            for stream in range(first, self._next_stream, 2)
        )
        self.socket.sendall(b"".join(asked))
        while count > 0:
            head = self._receive(9)
            payload = self._receive(int.from_bytes(head[:3], "big"))
            if (head[3] == HEADERS and head[4] & END_STREAM) or head[3] == RST_STREAM:
                count -= 1
            elif head[3] == PING and not head[4] & ACK:
                self.send(PING, ACK, 0, payload)

    def _receive(self, size: int) -> bytes:
        while len(self._unread) < size:
            got = self.socket.recv(65536)
            if not got:
                raise ConnectionResetError("the server closed the connection")
            self._unread += got
        head, self._unread = self._unread[:size], self._unread[size:]
        return head

    def _read_frame(self) -> None:
        head = self._receive(9)
        kind, flags = head[3], head[4]
        stream = struct.unpack(">I", head[5:])[0] & 0x7FFFFFFF
        payload = self._receive(int.from_bytes(head[:3], "big"))
        if kind == WINDOW_UPDATE:
            self._windows[stream] = self._windows.get(stream, 0) + struct.unpack(">I", payload)[0]
        elif kind == RST_STREAM:
            self._reset.add(stream)
        elif kind == HEADERS and flags & END_STREAM:
            self._ended.add(stream)
        elif kind == PING and not flags & ACK:
            self.send(PING, ACK, 0, payload)
        elif kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                setting, value = struct.unpack(">HI", payload[at : at + 6])
                if setting == INITIAL_WINDOW_SIZE:
                    change, self._stream_window = value - self._stream_window, value
                    for open_stream in self._windows:
                        self._windows[open_stream] += change if open_stream else 0
            self.send(SETTINGS, ACK, 0, b"")
