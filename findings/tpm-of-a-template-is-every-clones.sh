#!/usr/bin/env bash
# Clones of a Proxmox VE template have the template's TPM: one endorsement key, and each can unseal another's secrets.
#
# Expected: a clone has its own TPM, as it has its own MAC, SMBIOS uuid and vmgenid. A TPM identifies
# a machine, and what is sealed to it cannot be read elsewhere.
# What happens: a clone's `tpmstate0` is a copy of the template's, and swtpm_setup creates no TPM if there is one
# (--not-overwrite). Seeds and the keys derived from them are the same in the template and in all its clones, so one
# clone can unseal what was sealed in another. TPM state that was never used is empty, and each clone creates a TPM in it.
# Version: swtpm 0.7.1, tpm2-tools 5.7 (Debian 13's packages).
# Source of the rule: qemu-server 9.2.6, clone_vm in PVE/API2/Qemu.pm (`tpmstate0` is always copied in full, other drives
# can be linked; the MAC, smbios1 and vmgenid are made for the clone) and start_swtpm in PVE/QemuServer.pm.
# Why it matters: software that identifies nodes by their endorsement key (attestation) sees one node. Disk keys and
# `systemd-creds` credentials that are sealed only to one node's TPM can be opened on every other one. Add the TPM state
# to a template last, and do not boot it afterwards.
#
# The copies are made as Proxmox VE makes them, with the same programs, but without a Proxmox VE.
# Needs root, mmdebstrap (2 minutes, no kernel, no TPM).
set -euo pipefail

[ "$(id -u)" = 0 ] || { echo "run this as root: it installs packages into a folder" >&2; exit 2; }
command -v mmdebstrap >/dev/null || { echo "mmdebstrap is missing" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mmdebstrap --quiet --mode=root --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
  --include=qemu-utils,swtpm=0.7.1-1.5,swtpm-tools=0.7.1-1.5,tpm2-tools=5.7-1,libtss2-tcti-swtpm0t64=4.1.3-1.2 \
  trixie "$root" http://deb.debian.org/debian > "$work/log" 2>&1 || { tail "$work/log" >&2; exit 2; }

cat > "$root/see" <<'SEE'
set -euo pipefail
cd /root
export TPM2TOOLS_TCTI=swtpm:path=/root/tpm

# machine NAME COMMAND…: runs a command while the machine's TPM runs, which is started as start_swtpm does.
machine() {
  local state=/root/$1
  shift
  swtpm_setup --tpm2 --ecc --createek --tpmstate "file://$state" --runas 0 --not-overwrite > setup.log
  swtpm socket --tpm2 --tpmstate "backend-uri=file://$state,mode=0600" --server type=unixio,path=/root/tpm \
    --ctrl type=unixio,path=/root/tpm.ctrl --flags not-need-init,startup-clear 2> swtpm.log &
  local process=$!
  while [ ! -S tpm ] || [ ! -S tpm.ctrl ]; do kill -0 $process; sleep 0.1; done
  "$@"
  kill $process
  wait $process || true
  rm -f tpm tpm.ctrl
}
# A full copy of a raw volume.
clone() { qemu-img convert -f raw -O raw "$1" "$2"; }
endorsement_key() { tpm2_createek -Q -G ecc -c ek.ctx -u ek.pub; sha256sum ek.pub > "$1.key"; }
seal() {
  tpm2_createprimary -Q -C o -G ecc -c srk.ctx
  echo 'a disk key' | tpm2_create -Q -C srk.ctx -i - -u sealed.pub -r sealed.priv
}
opens() {
  tpm2_createprimary -Q -C o -G ecc -c srk.ctx
  # There is no resource manager, and a TPM has room for three keys.
  tpm2_flushcontext -t
  if tpm2_load -Q -C srk.ctx -u sealed.pub -r sealed.priv -c sealed.ctx 2> load.log; then
    tpm2_flushcontext -t
    tpm2_unseal -c sealed.ctx
  else
    grep -o 'integrity check failed' load.log
  fi
}
compare() { if cmp -s "$1.key" "$2.key"; then echo "one endorsement key"; else echo "two endorsement keys"; fi; }

for template in used unused; do
  truncate -s 4M $template
  [ $template = unused ] || machine $template endorsement_key template
  clone $template w1
  clone $template w2
  for name in w1 w2; do machine $name endorsement_key $name; done
  machine w1 seal
  echo "TPM state of the template: $template"
  echo "  w1 and w2: $(compare w1 w2)"
  [ $template = unused ] || echo "  w1 and the template: $(compare w1 template)"
  echo "  w2 opens what w1 has sealed: $(machine w2 opens)"
done
SEE
chroot "$root" bash /see > "$work/got" 2> "$work/log" || { cat "$work/got" "$work/log" >&2; exit 2; }
chroot "$root" dpkg-query -W swtpm tpm2-tools
cat "$work/got"
cat > "$work/want" <<'WANT'
TPM state of the template: used
  w1 and w2: one endorsement key
  w1 and the template: one endorsement key
  w2 opens what w1 has sealed: a disk key
TPM state of the template: unused
  w1 and w2: two endorsement keys
  w2 opens what w1 has sealed: integrity check failed
WANT
diff "$work/want" "$work/got" || { echo "the behaviour has changed" >&2; exit 1; }
