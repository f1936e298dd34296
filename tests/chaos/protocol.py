"""What is made from proto/ when a program begins."""

import pathlib
import subprocess
import sys
from typing import Any

from tools.daemon import ROOT

inference: Any = None  # the messages
control: Any = None
InferenceStub: Any = None
ControlStub: Any = None


def load(folder: pathlib.Path) -> None:
    """Before anything else here is used. The folder gets the modules."""
    global inference, control, InferenceStub, ControlStub
    subprocess.run(["bash", ROOT / "client" / "python" / "generate_stubs.sh", folder], check=True)
    sys.path.insert(0, str(folder))
    from moe.v1 import control_pb2 as control
    from moe.v1 import inference_pb2 as inference
    from moe.v1.control_pb2_grpc import ControlStub
    from moe.v1.inference_pb2_grpc import InferenceStub
