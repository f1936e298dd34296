#!/bin/bash
# Within the systemd of systemd_in_namespaces.sh: the two units with tokens, as their comments say. systemd_test.py reads what is printed.
set -u

until_true() { for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; echo "never: $*"; }
main_pid() { systemctl show --property MainPID --value moed; }
settings() { printf '%s\n' MOED_STORE=/var/lib/moed/model.moed MOED_SANDBOX=require "$@" >/etc/moed/moed.env; }

for name in caller front; do
    moectl token new $name infer,observe,control 2>/dev/null >/tmp/token
    sed -n 1p /tmp/token >/etc/moed/$name.token
    sed -n 2p /tmp/token >>/etc/moed/tokens
done
mv /etc/moed/front.token /etc/moed/http.token
chmod 600 /etc/moed/*token*
sed -i -e 's/^#\(LoadCredential=\|Environment=\)/\1/' /etc/systemd/system/moed.service /etc/systemd/system/moed-http.service
settings MOED_MEMORY_BUDGET=14MiB MOED_LEARNED_STATE=/var/cache/moed/learned MOED_RESIDENCY=/var/cache/moed/residency \
    MOED_REQUEST_LOG=/var/log/moed/requests.log MOED_KV_SPILL=/var/cache/moed MOED_KV_SPILL_BUDGET=8MiB
systemctl daemon-reload
systemctl start moed moed-http
echo "started: $?"
moectl info >/dev/null 2>&1
echo "without a token: $?"
export MOECTL_TOKEN_FILE=/etc/moed/caller.token
moectl generate --prompt Once --regex '[0-9]{3}' --max-new-tokens 8 2>/dev/null | grep -qxE '[0-9]{3}'
echo "compiled pattern: $?"
until_true curl -sf http://127.0.0.1:8080/readyz
curl -sf http://127.0.0.1:8080/v1/models -H "x-api-key: $(cat /etc/moed/caller.token)" | grep -q '"id":"model"'
echo "over HTTP: $?"
systemctl reload moed moed-http
echo "reloaded: $?"
mv /var/log/moed/requests.log /var/log/moed/requests.log.1  # as logrotate does
systemctl reload moed
until_true test -e /var/log/moed/requests.log
moectl generate --prompt Once --max-new-tokens 2 >/dev/null 2>&1
until_true grep -q '"id"' /var/log/moed/requests.log
grep -q '"id"' /var/log/moed/requests.log.1
echo "lines before and after a rotation: $?"
first=$(main_pid)
[ "$first" -gt 1 ] && kill -KILL "$first"
until_true sh -c "systemctl is-active moed && [ \"\$(systemctl show --property MainPID --value moed)\" != $first ]"
moectl health
echo "after SIGKILL: $?"
moectl generate --prompt Once --max-new-tokens 8 >/dev/null 2>&1
systemctl stop moed moed-http
echo "states: $(systemctl is-failed moed moed-http | tr '\n' ' ')"
echo "kept: $(cd /var/cache/moed && ls | tr '\n' ' ')"
settings MOED_LOG_LEVEL=loud
echo MOED_HTTP_LOG_LEVEL=loud >/etc/moed/moed-http.env
for unit in moed moed-http; do
    systemctl start $unit 2>/dev/null
    until_true systemctl is-failed $unit
    echo "$unit with a wrong setting: $(systemctl show --property ExecMainStatus --property NRestarts --value $unit | sort -r | tr '\n' ' ')"
done
mkdir /etc/systemd/system/moed.service.d
printf '[Service]\nRestartSec=100ms\n' >/etc/systemd/system/moed.service.d/sooner.conf
systemctl daemon-reload
settings MOED_MEMORY_BUDGET=4MiB
systemctl start moed 2>/dev/null
echo "too little memory: $?"
until_true sh -c '[ "$(systemctl show --property NRestarts --value moed)" -ge 8 ]'
settings MOED_MEMORY_BUDGET=14MiB  # what was wrong has passed
until_true systemctl is-active moed
moectl health
echo "by itself after many tries: $?"
systemctl stop moed
rm /etc/moed/moed.env
systemctl start moed 2>/dev/null
echo "without settings: $? $(systemctl status moed | grep -o 'AssertPathExists=.*')"
journalctl --no-pager --unit moed --lines 50 | grep -o 'the smallest budget that works: [0-9]* bytes' | tail -n 1
journalctl --no-pager --unit moed --unit moed-http >/out/journal
