#!/bin/sh
# shellcheck disable=SC2013,SC2086,SC2154
# Each line of CONFIG/paths (name, round trip, rate, queue, loss), as `crossing` finds it over springtide-wan. In a
# guest, whose first process this is, by the kernel's netem and tbf first. Arguments on a host: CONFIG.
config=${1:-}
if [ -z "$config" ]; then
    export PATH=/bin
    mkdir -p /run /var
    mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs run /run
    for module in $(cat /modules/order); do insmod "/modules/$module" 2>&1 | grep -v "File exists"; done
    # A shell of busybox would take its own.
    ip() { /bin/ip "$@"; }
    tc() { /bin/tc "$@"; }
fi
echo "kernel $(uname -r)"
in=sprt-wan-
made() { for space in "$@"; do ip netns add $in$space; ip -n $in$space link set lo up; done; }
gone() { for space in "$@"; do ip netns del $in$space; done; }
# A device without segments of many packets: a queue counts what the link carries.
pair() {
    ip link add "$1" netns $in$2 type veth peer name "$3" netns $in$4
    ip -n $in$2 link set "$1" gso_max_segs 1 up; ip -n $in$4 link set "$3" gso_max_segs 1 up
}
crossed() { echo "way $1 $2 $(crossing /run/netns/${in}a /run/netns/${in}b 10.2.0.1 $3 2>&1)"; }

# Sender, the queue's router, receiver.
by_kernel() {
    made a r b; pair a0 a r0 r; pair r1 r b0 b
    ip -n ${in}a addr add 10.1.0.1/24 dev a0; ip -n ${in}r addr add 10.1.0.2/24 dev r0
    ip -n ${in}r addr add 10.2.0.2/24 dev r1; ip -n ${in}b addr add 10.2.0.1/24 dev b0
    ip -n ${in}a route add default via 10.1.0.2; ip -n ${in}b route add default via 10.2.0.2
    ip netns exec ${in}r sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    half=$((rtt * 500))
    tc -n ${in}a qdisc add dev a0 root netem delay ${half}us loss $loss% limit 100000
    tc -n ${in}b qdisc add dev b0 root netem delay ${half}us limit 100000
    # Two packets of tokens, so that a timer which is late costs no rate; its child alone is the queue.
    tc -n ${in}r qdisc add dev r1 root handle 1: tbf rate ${rate}mbit burst 3028 limit 1000000
    tc -n ${in}r qdisc add dev r1 parent 1:1 handle 2: pfifo limit $queue
    crossed kernel $name $rate
    gone a r b
}

by_emulator() {
    made a b
    : >$config/log # what the one before said is not this one's
    springtide-wan --config $config/$name.json >$config/log 2>&1 & wan=$!
    while ! grep -q ready $config/log; do kill -0 $wan || { cat $config/log; break; }; sleep 1; done
    for space in a b; do
        [ $space = a ] && at=10.1.0.1 || at=10.2.0.1
        ip -n $in$space link set wan0 txqueuelen 4000 up
        ip -n $in$space addr add $at/24 dev wan0; ip -n $in$space route add default dev wan0
    done
    crossed emulator $name $rate
    kill $wan; wait $wan
    gone a b
    echo "done $name"
}

while read -r name rtt rate queue loss; do
    [ -n "$config" ] || by_kernel
    by_emulator
done <$config/paths
echo "all ways"
[ -n "$config" ] || poweroff -f
