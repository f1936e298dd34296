"""Streams an answer from moed and prints what it cost. Stubs: generate_stubs.sh."""

import argparse
import pathlib
import sys

import grpc
from moe.v1 import inference_pb2, inference_pb2_grpc


def contents(path: pathlib.Path | None) -> bytes | None:
    return path.read_bytes() if path else None


def open_channel(options: argparse.Namespace) -> grpc.Channel:
    # Proxies of the environment are for what is elsewhere.
    here = options.server.startswith(("unix:", "localhost:", "127.", "[::1]:"))
    settings = [("grpc.enable_http_proxy", 0)] if here else []
    if not options.tls_ca:
        return grpc.insecure_channel(options.server, settings)
    credentials = grpc.ssl_channel_credentials(contents(options.tls_ca), contents(options.tls_key), contents(options.tls_cert))
    return grpc.secure_channel(options.server, credentials, settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompt")
    parser.add_argument("--server", default="127.0.0.1:50051")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--session", default="", help="a conversation that the daemon keeps and goes on with")
    parser.add_argument("--tls-ca", type=pathlib.Path, help="TLS: authorities of the server's certificate, PEM")
    parser.add_argument("--tls-cert", type=pathlib.Path, help="this client's certificate, PEM, where the server wants one")
    parser.add_argument("--tls-key", type=pathlib.Path, help="its key, PEM")
    parser.add_argument("--token-file", type=pathlib.Path, help="the token that is presented, where the server wants one")
    options = parser.parse_args()

    request = inference_pb2.GenerateRequest(
        text=options.prompt,
        sampling=inference_pb2.Sampling(temperature=options.temperature, seed=options.seed),
        stopping=inference_pb2.Stopping(max_new_tokens=options.max_new_tokens),
        session_id=options.session,
    )
    # A proxy can choose the daemon that keeps the conversation by it. gRPC takes printable ASCII, without spaces at its ends.
    session = options.session
    fits = 0 < len(session) <= 1024 and session.isascii() and session.isprintable() and session == session.strip()
    metadata = [("moe-session-id", session)] if fits else []
    if options.token_file:
        metadata.append(("authorization", f"Bearer {options.token_file.read_text().strip()}"))
    with open_channel(options) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        try:
            for response in stub.GenerateStream(request, metadata=metadata):
                print(response.text, end="", flush=True)
                if response.HasField("finish"):
                    stats = response.finish.stats
                    print(
                        f"\n[{response.finish.usage.completion_tokens} tokens, TTFT {stats.ttft_seconds:.3f} s, "
                        f"TPOT {stats.tpot_seconds * 1e3:.1f} ms]",
                        file=sys.stderr,
                    )
        except grpc.RpcError as error:
            sys.exit(f"{error.code().name}: {error.details()}")


if __name__ == "__main__":
    main()
