# Header and data digests, alone and together: writes in capsule, writes by R2T, and reads.
for digests in -g -G "-g -G"; do
    # Split on purpose: each word is an option.
    # shellcheck disable=SC2086
    connect -i 1 $digests
    disk=$(volume 1)
    pattern "digest$digests" 2 >/tmp/wrote
    expect "2 MiB written with $digests" dd if=/tmp/wrote of="$disk" bs=512k seek=4 oflag=direct
    expect "one block in its capsule" dd if=/tmp/wrote of="$disk" bs=512 count=1 oflag=direct
    dd if="$disk" of=/tmp/read bs=512k skip=4 count=4 iflag=direct 2>/dev/null
    expect "read back equal" cmp /tmp/wrote /tmp/read
    disconnect
done
if dmesg | grep -qi "digest error"; then fail "the kernel saw a wrong digest"; fi
