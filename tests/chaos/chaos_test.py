"""The daemon does not fall over. Clients, disks, clocks and signals misbehave; after each of them no request runs, descriptors,
threads and memory are where they were, and the next answer has the same bits.

A short run by itself. CHAOS=long repeats everything many times, opens 10,000 connections and waits for what takes half a minute:
    CHAOS=long python3 -m tests.chaos.chaos_test"""

from tests.chaos import clients, disks, ends, storage
from tests.real_programs import main


class ChaosTest(clients.Clients, storage.Storage, disks.Disks, ends.Ends):
    pass


if __name__ == "__main__":
    main()
