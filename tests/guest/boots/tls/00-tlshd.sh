# What makes the kernel's channels: keys are in its keyring, and tlshd looks there.
echo /bin/modprobe >/proc/sys/kernel/modprobe
modprobe -a tls gcm
tlshd -s >/run/tlshd.log 2>&1 &
sleep 1
expect "tlshd runs" pidof tlshd
