# blktests 064: admin commands are answered over a path that the server has closed.
connect -i 1
disk=$(volume 1)
host path inaccessible >/dev/null
tries=0
while ! cat "/sys/class/nvme/${CTRL##*/}"/nvme*c*n*/ana_state | grep -q inaccessible; do
    tries=$((tries + 1))
    [ $tries -lt 60 ] || fail "the host does not hear that its path is closed"
    sleep 0.5
done
expect "Identify Controller" nvme id-ctrl "$CTRL"
expect "Identify Controller of the command set" nvme nvm-id-ctrl "$CTRL"
expect "Identify Namespace" nvme id-ns "$CTRL" -n 1
expect "the list of namespaces" nvme list-ns "$CTRL"
expect "a log page" nvme smart-log "$CTRL"
host path optimized >/dev/null
expect "once it is open, the volume is read" dd if="$disk" of=/dev/null bs=64k count=4 iflag=direct
