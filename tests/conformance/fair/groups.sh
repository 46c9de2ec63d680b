# Plays the tasks of groups.toml in control groups of the virtual machine and prints what each used, see docs/model.md.
mkdir -p /cg && mount -t cgroup2 none /cg && echo +cpu > /cg/cgroup.subtree_control || exit 1
mkdir /cg/g1 /cg/g2 /cg/g3 && echo 300 > /cg/g2/cpu.weight && echo "10000 100000" > /cg/g3/cpu.max || exit 1
spin() { echo "name = \"$2\"
duration = \"3s\"
[[task]]
name = \"$2\"
steps = [{ loop = { steps = [{ run = \"100ms\" }] } }]" > /$2.toml
    sh -c "echo \$\$ > /cg/$1/cgroup.procs; exec schedlab-guest play /$2.toml" & }
spin g1 a; spin g2 b; spin g2 c; spin g3 d; wait
grep -H usage_usec /cg/g*/cpu.stat
