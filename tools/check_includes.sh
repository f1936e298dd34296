#!/usr/bin/env bash
# Holds the includes of core/ against the table in docs/architecture.md: a module includes only what stands in its row.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A may=(
  [base]="base"
  [quant]="base quant"
  [kernels]="base quant kernels"
  [io]="base io"
  [store]="base quant io store"
  [expert]="base quant io store expert"
  [tokenizer]="base tokenizer"
  [model]="base quant kernels store expert tokenizer model"
  [engine]="base tokenizer model expert engine"
)
bad=0
for module in core/*/; do
  module=$(basename "$module")
  [ -n "${may[$module]:-}" ] || { echo "core/$module has no row in tools/check_includes.sh"; bad=1; continue; }
  while IFS=: read -r file line text; do
    included=$(sed -E 's/.*"([^"]+)".*/\1/' <<<"$text")
    case "$included" in
      core/*)
        target=$(cut -d/ -f2 <<<"$included")
        case " ${may[$module]} " in
          *" $target "*) ;;
          *) echo "$file:$line: core/$module may not include $included (allowed: ${may[$module]})"; bad=1 ;;
        esac ;;
      server/*|client/*|tools/*|moe/*) echo "$file:$line: core may not include $included"; bad=1 ;;
    esac
  done < <(grep -rnE '^#include "' "core/$module" --include='*.h' --include='*.cc' || true)
done
# Of the expert path the model sees the provider and the handle only.
if grep -rnE '^#include "core/expert/' core/model --include='*.h' --include='*.cc' | grep -vE 'core/expert/(provider|routing)\.h"'; then
  echo "core/model may include only provider.h and routing.h of core/expert"; bad=1
fi
if grep -rnE '^#include "core/' client --include='*.h' --include='*.cc' | grep -vE 'core/base/'; then
  echo "client may include only core/base"; bad=1
fi
[ "$bad" = 0 ] && echo "includes follow docs/architecture.md"
exit "$bad"
