"""What most tests of moed-http run against."""

import pathlib
from typing import ClassVar

from tests.http.front import Front, front_of
from tests.real_programs import RealProgramsTest
from tools.daemon import Daemon, pack_demo, running


class ServedTest(RealProgramsTest):
    """One daemon with the demo model, and one moed-http in front of it, for all tests of a class that need no other."""

    daemon_flags: ClassVar[tuple[object, ...]] = ("--memory-budget", "64MiB")
    front_flags: ClassVar[tuple[object, ...]] = ()
    store: ClassVar[pathlib.Path]
    daemon: ClassVar[Daemon]
    front: ClassVar[Front]

    @classmethod
    def pack(cls) -> pathlib.Path:
        return pack_demo(cls.binaries, cls.folder, "q8", "q8")

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.store = cls.pack()
        cls.daemon = cls.enterClassContext(running(cls.binaries, "--store", cls.store, *cls.daemon_flags))
        cls.front = cls.enterClassContext(front_of(cls.daemon, *cls.front_flags))
