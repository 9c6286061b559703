#!/usr/bin/env bash
# Inside Colab's image: colab.sh COURSE COMMIT. Installs what the notebooks' first cell installs, but from the commit in
# the folder COURSE, and runs every notebook of it against the stored outputs. Called by .github/workflows/colab.yml.
set -euo pipefail
export LC_ALL=C
course=$1 commit=$2 work=${3:-/tmp/colab}
mkdir "$work"
git config --global --add safe.directory "$course/.git" # the folder belongs to another user
git clone --quiet --no-checkout "$course/.git" "$work/course"
git -C "$work/course" checkout --quiet --detach "$commit"

python3 --version
python3 -m pip list --format freeze 2>/dev/null | sort >"$work/before"
# From a folder and not by git: pip asks git for a partial clone, which a shallow copy such as CI's cannot give.
python3 -m pip install -q "gptlab @ file://$work/course"
python3 -m pip list --format freeze 2>/dev/null | sort >"$work/after"
echo 'What the first cell added or changed:'
comm -13 "$work/before" "$work/after"
if comm -23 "$work/before" "$work/after" | grep .; then
    echo 'The first cell replaced these packages of Colab: widen their range in pyproject.toml.'
    exit 1
fi

# Not part of what a reader has: what compares. The notebooks lie alone, as in Colab, without the course beside them.
python3 -m pip install -q nbval
cd "$work/course"
mkdir alone && cp book/*.ipynb alone/
python3 scripts/validate.py alone
