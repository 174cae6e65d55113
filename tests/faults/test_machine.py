"""Users, faults and time, mixed by hypothesis: a few walks here, many in ``make faults``."""

from tests.faults.rig.machine import MACHINE, Machine

Machine.TestCase.settings = MACHINE
TestMachine = Machine.TestCase
