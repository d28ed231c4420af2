from pathlib import Path

from pygsage.memory.peak import PeakMemory, undroppable_bytes


def test_reads_anonymous_and_shared_but_not_mapped_files(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tx\nVmRSS:\t  900 kB\nRssAnon:\t  100 kB\nRssFile:\t  700 kB\nRssShmem:\t  20 kB\n")
    assert undroppable_bytes(str(status)) == 120 * 1024
    assert undroppable_bytes(str(tmp_path / "none")) == 0


def test_the_peak_of_a_block_that_has_ended_is_kept() -> None:
    with PeakMemory(interval_s=60) as memory:
        before = memory.sample()
        block = bytearray(b"x" * (64 << 20))
        memory.sample()
        del block
    assert before + (60 << 20) < memory.peak_bytes
