#!/usr/bin/env bash
# Puts the gate's verdict into the pull request's one comment of ours.
#
# Runs with a token that may write, on a file that the pull request's own code made: the file is
# text to be shown and nothing else. Which pull request it is comes from the event, not the file.
#
#   GITHUB_REPOSITORY, HEAD_OWNER, HEAD_BRANCH, HEAD_SHA     of the workflow run that made the file
#   $1                                                       the file
set -euo pipefail
file=$1
marker='<!-- k3bench gate -->'
[[ -f "$file" ]] || { echo "no verdict in this run"; exit 0; }

number=$(gh api -X GET "repos/$GITHUB_REPOSITORY/pulls" -f state=open \
  -f head="$HEAD_OWNER:$HEAD_BRANCH" \
  --jq "[.[] | select(.head.sha == \"$HEAD_SHA\")][0].number // empty")
[[ "$number" =~ ^[0-9]+$ ]] || { echo "no open pull request has $HEAD_SHA as its head"; exit 0; }

body=$(mktemp)
trap 'rm -f "$body"' EXIT
{
  echo "$marker"
  # GitHub takes 65,536 characters. A zero-width space after @ keeps names from being notified.
  head -c 60000 "$file" | iconv -c -f utf-8 -t utf-8 | sed 's/@/@\xe2\x80\x8b/g'
} > "$body"

ours=$(gh api --paginate "repos/$GITHUB_REPOSITORY/issues/$number/comments" --jq \
  ".[] | select(.user.login == \"github-actions[bot]\" and (.body | startswith(\"$marker\"))) | .id")
ours=${ours%%$'\n'*}
if [[ "$ours" =~ ^[0-9]+$ ]]; then
  gh api -X PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$ours" -F body=@"$body" > /dev/null
  echo "comment $ours of pull request $number updated"
else
  gh api -X POST "repos/$GITHUB_REPOSITORY/issues/$number/comments" -F body=@"$body" > /dev/null
  echo "comment on pull request $number made"
fi
