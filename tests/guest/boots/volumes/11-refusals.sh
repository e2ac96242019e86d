# What must not work says why, and leaves the controller usable.
refuse "a subsystem that is not there" 'could not add' \
    nvme connect -t tcp -a "$ADDR" -s "$PORT" -n nqn.2026-11.org.diskside:absent
dmesg | grep -q 'Connect Invalid Data Parameter, subsysnqn "nqn.2026-11.org.diskside:absent"' ||
    fail "the kernel was not told that the subsystem's name was wrong"
connect -i 1
disk=$(volume 1)
# The low two bits of an opcode are its data direction; these have none.
refuse "an unknown I/O opcode" 'invalid.*opcode\|INVALID_OPCODE' nvme io-passthru "$disk" --opcode=0xa4 -n 1
refuse "an unknown admin opcode" 'invalid.*opcode\|INVALID_OPCODE' nvme admin-passthru "$CTRL" --opcode=0xe4
refuse "an unknown log page" 'invalid' nvme get-log "$CTRL" --log-id=0xbf --log-len=512
refuse "a namespace that is not there" 'invalid.*namespace\|INVALID_NS' \
    nvme id-ns "$CTRL" -n 4000000000
expect "still usable" dd if="$disk" of=/dev/null bs=4k count=16 iflag=direct
