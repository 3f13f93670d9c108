#!/usr/bin/env bash
# clang-format over all C++ files that git knows.   tools/check_format.sh [--fix]     Exit code 1 when a file is not formatted.
# clang-format 14 is what counts (Debian 12); other versions break lines differently.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$(command -v clang-format-14 || command -v clang-format) || { echo "error: clang-format is missing: run setup/install.sh" >&2; exit 2; }
files=()
while IFS= read -r -d "" file; do [ ! -e "$file" ] || files+=("$file"); done < <(git ls-files -z "*.h" "*.cpp" "*.cu")
[ ${#files[@]} -gt 0 ] || exit 0
case ${1:-} in
  '') ;;
  --fix) exec "$tool" --style=file -i "${files[@]}" ;;
  *) echo "error: unknown word '$1'; known: --fix" >&2; exit 2 ;;
esac
unformatted=()
for file in "${files[@]}"; do
  "$tool" --style=file "$file" | cmp -s - "$file" || unformatted+=("$file")
done
if [ ${#unformatted[@]} -gt 0 ]; then
  printf 'not formatted: %s\n' "${unformatted[@]}"
  echo "error: ${#unformatted[@]} of ${#files[@]} files are not formatted; run tools/check_format.sh --fix" >&2
  exit 1
fi
echo "format: ${#files[@]} files are in order"
