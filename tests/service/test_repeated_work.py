"""A repeated work says why it is not ready, and soon tries again after a pass that has failed."""

from collections.abc import Callable

from sqlalchemy.exc import TimeoutError as PoolExhausted

from semel.service.repeated import Repeated


def repeated(passes: list[Callable[[], str]], at: list[float], every_seconds: float) -> Repeated:
    def work() -> str:
        if len(passes) == 1:
            service.stop()
        return passes.pop(0)()

    service = Repeated(work, every_seconds, lambda: at[0])
    return service


def test_a_pass_that_hangs_is_told_to_a_probe() -> None:
    at, told = [0.0], list[str]()

    def hanging() -> str:
        told.append(service.why_not_ready(60))
        at[0] += 61
        told.append(service.why_not_ready(60))
        return "done"

    service = repeated([lambda: "done", hanging], at, 0)
    service.run()
    assert told == ["", "behind: the present pass has run for 61 s"]
    assert service.why_not_ready(60) == ""


def test_a_pass_that_has_failed_is_tried_again_long_before_the_next_one_is_due() -> None:
    def failing() -> str:
        raise PoolExhausted

    service = repeated([failing, lambda: "done"], [0.0], 3600)
    service.run()
    assert service.why_not_ready(60) == ""
