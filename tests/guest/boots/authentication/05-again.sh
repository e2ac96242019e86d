# The key is changed for another while the volume is in use.
connect --hostnqn "$HOSTNQN" --hostid "$HOSTID" --dhchap-secret "$KEY" -i 2
disk=$(volume 1)
pattern again 8 >/tmp/wrote
dd if=/tmp/wrote of="$disk" bs=64k oflag=direct 2>/dev/null &
for key in "$KEY" "$RENEWED" "$KEY"; do
    echo "$key" >"/sys/class/nvme/${CTRL##*/}/dhchap_secret"
    sleep 1
done
wait
same "it authenticated three times more" 3 "$(dmesg | grep -c 're-authenticating controller')"
dd if="$disk" of=/tmp/read bs=64k count=128 iflag=direct 2>/dev/null
expect "and what was written meanwhile is there" cmp /tmp/wrote /tmp/read
same "over the same controller" live "$(cat "/sys/class/nvme/${CTRL##*/}/state")"
disconnect
