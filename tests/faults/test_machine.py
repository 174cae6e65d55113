"""Users, faults and time, mixed by hypothesis: a few walks here, many in ``make faults``."""

from hypothesis import HealthCheck, Phase, settings

from tests.faults.rig.machine import Machine

Machine.TestCase.settings = settings(
    max_examples=4,
    stateful_step_count=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # the steps that failed are printed; shrinking takes minutes
    suppress_health_check=[*HealthCheck],
)
TestMachine = Machine.TestCase
