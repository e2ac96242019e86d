# One way, both ways, and anew while it works.
id=${HOSTNQN##*uuid:}
connect --hostnqn "$HOSTNQN" --hostid "$id" --dhchap-secret "$KEY" -i 1
expect "one way" dd if="$(volume 1)" of=/dev/null bs=64k count=8 iflag=direct
disconnect
connect --hostnqn "$HOSTNQN" --hostid "$id" --dhchap-secret "$KEY" --dhchap-ctrl-secret "$SERVER_KEY" -i 1
disk=$(volume 1)
pattern again 4 >/tmp/wrote
dd if=/tmp/wrote of="$disk" bs=64k oflag=direct 2>/dev/null &
echo "$KEY" >"/sys/class/nvme/${CTRL##*/}/dhchap_secret"
wait
same "it authenticated once more" 1 "$(dmesg | grep -c 're-authenticating controller')"
dd if="$disk" of=/tmp/read bs=64k count=64 iflag=direct 2>/dev/null
expect "both ways, and anew under writes" cmp /tmp/wrote /tmp/read
disconnect
