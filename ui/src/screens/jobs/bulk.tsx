import { Ban, RotateCcw } from "lucide-react";

import type { JobFilter } from "../../lib/query";
import { plural } from "../../lib/number";
import { Button } from "../../ui/button";
import css from "./jobs.module.css";

interface Props {
  selected: ReadonlySet<string>;
  filter: JobFilter;
  clear: () => void;
  done: () => void;
  loadedAll: boolean;
}

export function BulkBar({ selected, clear }: Props) {
  return (
    <div className={css.bulk} role="region" aria-label="Selected jobs">
      <strong>{plural(selected.size, "job")} selected</strong>
      <Button small icon={<RotateCcw size={14} />}>
        Retry
      </Button>
      <Button small danger icon={<Ban size={14} />}>
        Cancel
      </Button>
      <button type="button" className={css.link} onClick={clear}>
        Clear
      </button>
    </div>
  );
}
