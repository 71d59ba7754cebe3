import { Search, X } from "lucide-react";
import { type KeyboardEvent, type Ref, useEffect, useId, useState } from "react";

import { type Known, suggest } from "../lib/query";
import { IconButton } from "./button";
import css from "./search.module.css";

interface Props {
  value: string;
  onChange: (value: string) => void;
  known: Known;
  faults: readonly string[];
  inputRef: Ref<HTMLInputElement>;
}

/** The query language's box: suggestions while one types, taken by arrow keys and enter, or by a click. */
export function QueryBox({ value, onChange, known, faults, inputRef }: Props) {
  const [draft, setDraft] = useState(value);
  const [caret, setCaret] = useState(value.length);
  const [open, setOpen] = useState(false);
  const [active, setActive] = useState(-1);
  const id = useId();
  useEffect(() => setDraft(value), [value]);

  const options = open ? suggest(draft, caret, known) : [];
  const commit = (text: string) => {
    setOpen(false);
    setActive(-1);
    onChange(text.trim());
  };
  const take = (at: number) => {
    const chosen = options[at];
    if (!chosen) return;
    setDraft(chosen.text);
    setCaret(chosen.caret);
    setActive(-1);
    const input = document.getElementById(id) as HTMLInputElement | null;
    requestAnimationFrame(() => {
      input?.focus();
      input?.setSelectionRange(chosen.caret, chosen.caret);
    });
    if (!chosen.label.endsWith(":")) {
      onChange(chosen.text.trim());
      setOpen(false);
    }
  };
  const press = (event: KeyboardEvent<HTMLInputElement>) => {
    if (event.key === "ArrowDown" && !open) setOpen(true);
    else if (event.key === "ArrowDown") setActive((at) => Math.min(at + 1, options.length - 1));
    else if (event.key === "ArrowUp") setActive((at) => Math.max(at - 1, -1));
    else if (event.key === "Tab" && open && active >= 0) take(active);
    else if (event.key === "Enter" && active >= 0) take(active);
    else if (event.key === "Enter") commit(draft);
    else if (event.key === "Escape") {
      if (open) setOpen(false);
      else event.currentTarget.blur();
    } else return;
    if (event.key !== "Tab" || active >= 0) event.preventDefault();
  };

  return (
    <div className={css.box}>
      <Search className={css.icon} size={15} aria-hidden="true" />
      <input
        id={id}
        ref={inputRef}
        className={css.input}
        role="combobox"
        aria-label="Search jobs"
        aria-expanded={options.length > 0}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        aria-activedescendant={active >= 0 ? `${id}-${active}` : undefined}
        aria-invalid={faults.length > 0 || undefined}
        aria-describedby={faults.length > 0 ? `${id}-faults` : undefined}
        placeholder="status:failed key:sync-* after:2h or any text"
        spellCheck={false}
        autoComplete="off"
        value={draft}
        onChange={(event) => {
          setDraft(event.target.value);
          setCaret(event.target.selectionStart ?? event.target.value.length);
          setOpen(true);
          setActive(-1);
        }}
        onFocus={() => setOpen(true)}
        onBlur={() => {
          setOpen(false);
          if (draft.trim() !== value) commit(draft);
        }}
        onKeyDown={press}
      />
      {draft !== "" && (
        <span className={css.clear}>
          <IconButton
            small
            label="Clear the search"
            icon={<X size={14} />}
            onClick={() => {
              setDraft("");
              commit("");
            }}
          />
        </span>
      )}
      <ul className={css.list} id={`${id}-list`} role="listbox" aria-label="Suggestions" hidden={options.length === 0}>
        {options.map((option, at) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are the input's
          <li
            key={option.label}
            id={`${id}-${at}`}
            role="option"
            aria-selected={at === active}
            className={css.option}
            onPointerDown={(event) => {
              event.preventDefault();
              take(at);
            }}
            onPointerEnter={() => setActive(at)}
          >
            <code>{option.label}</code>
            <span className={css.hint}>{option.hint}</span>
          </li>
        ))}
      </ul>
      {faults.length > 0 && (
        <div className={css.faults} id={`${id}-faults`} role="alert">
          {faults.join(" ")}
        </div>
      )}
    </div>
  );
}
