#!/bin/sh
# shellcheck disable=SC2013,SC2086,SC2046,SC2116,SC2005,SC2320
# The guest's first process: a host and a peer, the edge's programs between them, and lines `check NAME ok|failed TEXT`.
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /sys/fs/cgroup /sys/fs/bpf /run /var
mount -t tmpfs run /run; mount -t cgroup2 cg /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf; mount -t securityfs sec /sys/kernel/security 2>/dev/null
mkdir /sys/fs/cgroup/edge
for module in $(cat /modules/order); do insmod "/modules/$module" 2>&1 | grep -v "File exists"; done
echo "kernel $(uname -r)"

# A shell of busybox would take its own.
ip() { /bin/ip "$@"; }
check() { if [ "$2" = 0 ]; then echo "check $1 ok"; else echo "check $1 failed $(echo $3)"; fi; }
COMMAND=springtide-edge
edge() {
    case $1 in
    apply) $COMMAND "$@" --allowed-signers /allowed_signers --edge ams-1 $PLACES 2>&1 ;;
    *) $COMMAND "$@" --edge ams-1 $PLACES 2>&1 ;;
    esac
}
PLACES="--cgroup /sys/fs/cgroup/edge --state-dir /var/state --run-dir /run/springtide"

ip link set lo up
ip netns add peer
ip link add up0 type veth peer name up0 netns peer
ip link set up0 up; ip addr add 192.168.0.1/24 dev up0; ip addr add fd00::1/64 dev up0 nodad
in_peer() { ip netns exec peer "$@"; }
in_peer ip link set lo up; in_peer ip link set up0 up
in_peer ip addr add 192.168.0.2/24 dev up0; in_peer ip addr add fd00::2/64 dev up0 nodad
in_peer ip addr add 10.77.2.9/32 dev lo; in_peer ip addr add 10.77.3.9/32 dev lo; in_peer ip addr add fd77:2::9/128 dev lo nodad
in_peer ip route replace 192.168.0.0/24 dev up0 src 10.77.2.9
in_peer ip -6 route add fd00::1/128 dev up0 src fd77:2::9
ip route add 10.77.2.0/24 via 192.168.0.2; ip route add 10.77.3.0/24 via 192.168.0.2; ip -6 route add fd77:2::/48 via fd00::2
in_peer nc -ll -p 5000 -e cat >/dev/null 2>&1 &
(echo 0 >/sys/fs/cgroup/edge/cgroup.procs; exec nc -ll -p 6000 -e cat >/dev/null 2>&1) &
sleep 1

# An opened connection to the address, as `ss` shows it; it stays for a second.
opened() {
    (echo 0 >/sys/fs/cgroup/edge/cgroup.procs; { echo hello; sleep 2; } | nc "$1" 5000 >/dev/null 2>&1) &
    sleep 1; ss -tinH state established dst "[$1]" dport = :5000
}
accepted() {
    sleep 2 # the one before is over
    ({ echo hello; sleep 3; } | in_peer nc "$1" 6000 >/dev/null 2>&1) &
    sleep 1; ss -tinH state established sport = :6000
}
starts() { echo "$2" | grep -q "cwnd:$3 "; check "$1" $? "wanted cwnd:$3, ss says $2"; }
program() { bpftool -j link show pinned /sys/fs/bpf/springtide/v6/link | sed 's/.*"prog_id":\([0-9]*\).*/\1/'; }
no_route() { [ -z "$(ip route show table 201 2>/dev/null)$(ip rule | grep 201)" ]; check "$1" $? "$(ip rule)"; }

if [ -e /only_loads ]; then
    text=$(edge apply /bpf.json); check applies $? "$text"
    starts opens_ipv4 "$(opened 10.77.2.9)" 60
    mode=$(sed 's/.*lockdown=\([a-z]*\).*/\1/' /proc/cmdline)
    text=$(edge check --json); echo "$text" | grep -q "\"lockdown\":\"$mode\""; check names_lockdown $? "$text"
    poweroff -f
fi
text=$(edge check --json); check checks_host $? "$text"
text=$(edge apply /bpf.json); check applies $? "$text"
seen=$(opened 10.77.2.9); starts opens_ipv4 "$seen" 60
echo "$seen" | grep -q "/40000000bps"; check opens_at_rate $? "$seen"
starts opens_ipv6 "$(opened fd77:2::9)" 40
seen=$(opened 10.77.3.9); echo "$seen" | grep -q " bbr "; check opens_by_bbr $? "$seen"
starts accepts_ipv4 "$(accepted 192.168.0.1)" 60
starts accepts_ipv6 "$(accepted fd00::1)" 40
text=$(edge status); check status $? "$text"
# SYNs that nobody answers: of five at least one is sent again before the kernel's second. One in ten waits for that.
again() { awk '/^Tcp:/ {segments = $13} END {print segments}' /proc/net/snmp; }
in_peer ip route add blackhole 10.77.2.50/32
before=$(again)
for _ in 1 2 3 4 5; do (echo 0 >/sys/fs/cgroup/edge/cgroup.procs; exec nc -w 3 10.77.2.50 5000 >/dev/null 2>&1) & done
usleep 700000; after=$(again); [ "$after" -gt "$before" ]; check syn_again $? "$before segments were sent again, then $after"

# Connections were opened and accepted: none of four is copied with odds of 1e-4.
text=$(edge check --json); seen=$(edge status --json)
number=0; echo "$text" | grep -q '"copies":{"reason":null' && number='[1-9]'
echo "$seen" | grep -q "\"copies\":$number"; check copies_as_said $? "$text $seen"

# Two connections that stay, and answer, whatever happens to the edge's program.
mkfifo /tmp/ask /tmp/ask2
(echo 0 >/sys/fs/cgroup/edge/cgroup.procs; exec nc 10.77.3.9 5000 </tmp/ask >/tmp/answers 2>/dev/null) & exec 3>/tmp/ask
(echo 0 >/sys/fs/cgroup/edge/cgroup.procs; exec nc 10.77.2.9 5000 </tmp/ask2 >/tmp/answers2 2>/dev/null) & exec 4>/tmp/ask2
answers() {
    echo "$1" >&3; echo "$1" >&4; sleep 1
    grep -q "$1" /tmp/answers && grep -q "$1" /tmp/answers2; check "$1" $? "$(cat /tmp/answers /tmp/answers2)"
}
answers held_at_first
first=$(program)
$COMMAND watch --edge ams-1 $PLACES >/tmp/watch 2>&1 & watch=$!
sleep 4; kill -9 $watch; wait $watch 2>/dev/null
starts killed_watch "$(opened 10.77.2.9)" 60
$COMMAND watch --edge ams-1 $PLACES >/tmp/watch 2>&1 & watch=$!
sleep 4; text=$(edge status); check restarted_watch $? "$text"
text=$(edge apply /again.json); check applies_again $? "$text"
starts acts_again "$(opened 10.77.2.9)" 50
[ "$(program)" = "$first" ]; check same_program $? "$first became $(program)"
kill -9 $watch
COMMAND=springtide-edge-next
text=$(edge apply /upgrade.json); check upgrades $? "$text"
[ "$(program)" != "$first" ]; check another_program $? "still $first"
text=$(edge follow); check follows_upgraded $? "$text"
starts acts_upgraded "$(opened 10.77.2.9)" 60
answers held_through_upgrade
text=$(edge status); check status_upgraded $? "$text"

# The collector: a poll beside ss, and a connection of 100,000 bytes that it sees close.
sleep 2
ss -tinmeHO dport = :5000 | grep ^ESTAB | sed 's/^/ss /'
springtide-collector once --host guest --format json --netns own --filter 'dport 5000' 2>&1 | sed 's/^/sample /'
springtide-collector run --host guest --print json --netns own --interval 60s --filter 'dport 5000' >/tmp/rows 2>/tmp/errors & collector=$!
sleep 4
(echo 0 >/sys/fs/cgroup/edge/cgroup.procs; { dd if=/dev/zero bs=1000 count=100 2>/dev/null; sleep 2; } | nc 10.77.2.9 5000 >/dev/null 2>&1)
sleep 3; kill $collector; wait $collector
grep -e _CLOSE -e _FIRST_FLIGHT /tmp/rows | sed 's/^/row /'
sed 's/^/row /' /tmp/errors
exec 3>&- 4>&-

text=$(edge withdraw); check withdraws $? "$text"
[ -z "$(ls /sys/fs/bpf)" ]; check leaves_no_pin $? "$(ls -R /sys/fs/bpf)"
starts default_after "$(opened 10.77.2.9)" 10
text=$(edge apply /routes.json); check applies_routes $? "$text"
starts routes_ipv4 "$(opened 10.77.2.9)" 30
starts routes_ipv6 "$(opened fd77:2::9)" 30
text=$(edge status); check status_routes $? "$text"
text=$(edge withdraw); check withdraws_routes $? "$text"
no_route leaves_no_route
# The same over nexthop objects.
ip nexthop add id 7 via 192.168.0.2 dev up0; ip nexthop add id 8 via fd00::2 dev up0
ip route replace 10.77.2.0/24 nhid 7; ip -6 route del fd77:2::/48; ip -6 route add fd77:2::/48 nhid 8
text=$(edge apply /objects.json); check applies_objects $? "$text"
ip route show table 201 | grep -q "nhid 7"; check copies_objects $? "$(ip route show table 201)"
starts objects_ipv4 "$(opened 10.77.2.9)" 31
starts objects_ipv6 "$(opened fd77:2::9)" 31
text=$(edge status); check status_objects $? "$text"
text=$(edge withdraw); check withdraws_objects $? "$text"
no_route leaves_no_object
# And on a kernel that tells no types.
mount -t tmpfs none /sys/kernel/btf
reason="/sys/kernel/btf/vmlinux is missing: this kernel tells no types"
text=$(edge check); [ $? = 3 ] && echo "$text" | grep -q "by bpf: no: $reason"; check untyped_said $? "$text"
text=$(edge apply /untyped.json); echo "$text" | grep -q "not by bpf but the kernel's default: $reason"; check untyped_default $? "$text"
starts untyped_starts "$(opened 10.77.2.9)" 10
text=$(edge apply /otherwise.json); echo "$text" | grep -q "not by bpf but routes: $reason"; check untyped_routes $? "$text"
starts untyped_ipv4 "$(opened 10.77.2.9)" 60
starts untyped_ipv6 "$(opened fd77:2::9)" 40
text=$(edge withdraw); check untyped_withdraws $? "$text"
no_route untyped_leaves_no_route
poweroff -f
