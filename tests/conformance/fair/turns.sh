# As groups.sh, with hogs that make no system calls; prints how many turns each had, see docs/model.md.
mkdir -p /cg && mount -t cgroup2 none /cg && echo +cpu > /cg/cgroup.subtree_control || exit 1
mkdir /cg/g1 /cg/g2 /cg/g3 && echo 300 > /cg/g2/cpu.weight && echo "10000 100000" > /cg/g3/cpu.max || exit 1
trace=/sys/kernel/tracing
mount -t tracefs none $trace 2>/dev/null
echo 16384 > $trace/buffer_size_kb
echo 1 > $trace/events/sched/sched_switch/enable || exit 1
spin() { sh -c "echo \$\$ > /cg/$1/cgroup.procs; echo $2 > /proc/self/comm; while :; do :; done" & }
spin g1 hog-a; spin g2 hog-b; spin g2 hog-c; spin g3 hog-d
sleep 3
echo 0 > $trace/tracing_on
kill $(jobs -p)
for hog in a b c d; do echo "hog-$hog $(grep -c "prev_comm=hog-$hog" $trace/trace)"; done
