#!/usr/bin/env bash
# The one command for tests: set-up, build, and all test tiers that this machine can run (unit, ranks, procs).
#   ./test.sh               everything except the tiers named below
#   ./test.sh --full        ... and ranks-full: the master invariant over all layouts (minutes more)
#   ./test.sh --label X     only that tier: unit | ranks | ranks-full | procs (may be repeated)
# Further words go to ctest, e.g. ./test.sh --label unit -- -R config
# Exit code: 0 when every test passed; set-up errors keep their own code (setup/install.sh).
set -euo pipefail
cd "$(dirname "$0")"

labels=() full=no ctest_words=()
while [ $# -gt 0 ]; do
  case $1 in
    --full) full=yes ;;
    --label)
      case ${2:-} in
        unit | ranks | ranks-full | procs) labels+=("$2") ;;
        *) echo "error: --label ${2:-}: known tiers are unit, ranks, ranks-full, procs" >&2; exit 2 ;;
      esac
      shift ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --) shift; ctest_words=("$@"); break ;;
    *) echo "error: unknown word '$1'; known: --full, --label TIER, --help, -- CTEST_WORDS" >&2; exit 2 ;;
  esac
  shift
done
[ ${#labels[@]} -gt 0 ] || labels=(unit ranks procs)
[ $full = no ] || labels+=(ranks-full)

setup/install.sh
# The program's own tests read a real model and real text (90 MB, fetched once).
[[ " ${labels[*]} " != *" procs "* ]] || setup/fetch.sh minilm wordnet12 gpt2-tokenizer
setup/build.sh
pattern=$(IFS='|'; echo "${labels[*]}")
echo "tests: ctest -L '^(${labels[*]})\$' in build/"
exec ctest --test-dir build --output-on-failure --no-tests=error -L "^($pattern)\$" "${ctest_words[@]}"
