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
check() { if [ "$2" = 0 ]; then echo "check $1 ok"; else echo "check $1 failed $3"; fi; }
edge() {
    case $1 in
    apply) springtide-edge "$@" --allowed-signers /allowed_signers --edge ams-1 $PLACES 2>&1 ;;
    *) springtide-edge "$@" --edge ams-1 $PLACES 2>&1 ;;
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
in_peer ip addr add 10.77.2.9/32 dev lo; in_peer ip addr add fd77:2::9/128 dev lo nodad
in_peer ip route replace 192.168.0.0/24 dev up0 src 10.77.2.9
in_peer ip -6 route add fd00::1/128 dev up0 src fd77:2::9
ip route add 10.77.2.0/24 via 192.168.0.2; ip -6 route add fd77:2::/48 via fd00::2
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
starts() { echo "$2" | grep -q "cwnd:$3 "; check "$1" $? "wanted cwnd:$3, ss says $(echo $2)"; }

if [ -e /only_loads ]; then
    text=$(edge apply /bpf.json); check applies $? "$text"
    starts opens_ipv4 "$(opened 10.77.2.9)" 60
    poweroff -f
fi
text=$(edge apply /bpf.json); check applies $? "$text"
seen=$(opened 10.77.2.9); starts opens_ipv4 "$seen" 60
echo "$seen" | grep -q "/40000000bps"; check opens_at_rate $? "$(echo $seen)"
starts opens_ipv6 "$(opened fd77:2::9)" 40
starts accepts_ipv4 "$(accepted 192.168.0.1)" 60
starts accepts_ipv6 "$(accepted fd00::1)" 40
text=$(edge status); check status $? "$text"
(opened 10.77.2.9 >/dev/null); (ss -tinHO; echo "== ss"; springtide-collector once --host guest --format json --netns own 2>&1; echo "== collector") >/tmp/seen
sed 's/^/seen /' /tmp/seen
text=$(edge withdraw); check withdraws $? "$text"
[ -z "$(ls /sys/fs/bpf)" ]; check leaves_no_pin $? "$(ls -R /sys/fs/bpf)"
starts default_after "$(opened 10.77.2.9)" 10
text=$(edge apply /routes.json); check applies_routes $? "$text"
starts routes_ipv4 "$(opened 10.77.2.9)" 30
starts routes_ipv6 "$(opened fd77:2::9)" 30
text=$(edge status); check status_routes $? "$text"
text=$(edge withdraw); check withdraws_routes $? "$text"
[ -z "$(ip route show table 201 2>/dev/null)$(ip rule | grep 201)" ]; check leaves_no_route $? "$(ip rule)"
poweroff -f
