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


def test_phases_have_peaks_of_their_own() -> None:
    with PeakMemory(interval_s=60) as memory:
        with memory.phase("large"):
            block = bytearray(b"x" * (64 << 20))
        del block
        with memory.phase("small"), memory.phase("inner"):
            pass
    assert set(memory.phase_bytes) == {"large", "small", "inner"}
    assert memory.phase_bytes["small"] + (60 << 20) < memory.phase_bytes["large"] == memory.peak_bytes


def test_c006_the_peak_is_a_high_water_mark_that_no_trough_lowers() -> None:
    """Two phases that allocate and free: the headroom between them is not taken for free."""
    with PeakMemory(interval_s=60) as memory:
        peaks = []
        for _ in range(2):
            block = bytearray(b"x" * (48 << 20))
            peaks.append(memory.sample())
            del block
            peaks.append(memory.sample())
    assert min(peaks) + (8 << 20) > max(peaks)


def test_a_block_can_turn_to_another_phase() -> None:
    memory = PeakMemory()
    with memory.phase("read"):
        memory.turn_to("process")
        assert "process" not in memory.phase_bytes
    assert memory.phase_bytes.keys() == {"read", "process"}
    with memory.phase("train"):
        memory.sample()
    assert memory.phase_bytes.keys() == {"read", "process", "train"}
