"""What candidates in tests may use. No test's outcome depends on how fast the machine is, or on what runs beside it."""

from dataclasses import replace

from coevo.sandbox import Limits

# For whoever comes to an end, good or bad: hundreds of times what it takes, so time never decides.
AMPLE = Limits(cpu_seconds=90.0, wall_seconds=900.0, memory_mb=256, output_kb=1024, file_mb=16, processes=16)
# For whoever has to be stopped. Good candidates are judged beside it on one tiny instance.
SMALL = replace(AMPLE, cpu_seconds=1.0, wall_seconds=4.0)
