# Plays hogs.toml in the virtual machine and prints the switches, see docs/model.md.
mount -t tracefs none /sys/kernel/tracing && cd /sys/kernel/tracing || exit 1
echo mono > trace_clock
echo 1 > events/sched/sched_switch/enable
echo 1 > events/sched/sched_waking/enable
schedlab-guest play /fair/hogs.toml
echo 0 > tracing_on
cat trace
