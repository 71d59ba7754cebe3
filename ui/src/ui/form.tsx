import { Switch as BaseSwitch } from "@base-ui/react/switch";
import { type InputHTMLAttributes, type ReactNode, type SelectHTMLAttributes, type TextareaHTMLAttributes, useId } from "react";

import css from "./form.module.css";

interface Wrap {
  label: ReactNode;
  hint?: ReactNode;
  fault?: string | null;
}

function Wrapped({ label, hint, fault, id, children }: Wrap & { id: string; children: ReactNode }) {
  return (
    <div className={css.field}>
      <label className={css.label} htmlFor={id}>
        {label}
      </label>
      {children}
      {hint && (
        <span className={css.hint} id={`${id}-hint`}>
          {hint}
        </span>
      )}
      {fault && (
        <span className={css.fault} id={`${id}-fault`} role="alert">
          {fault}
        </span>
      )}
    </div>
  );
}

function described({ hint, fault }: Partial<Wrap>, id: string) {
  return {
    id,
    "aria-invalid": fault ? true : undefined,
    "aria-describedby": [hint && `${id}-hint`, fault && `${id}-fault`].filter(Boolean).join(" ") || undefined,
  };
}

export function TextField({ label, hint, fault, ...rest }: Wrap & InputHTMLAttributes<HTMLInputElement>) {
  const id = useId();
  return (
    <Wrapped label={label} hint={hint} fault={fault} id={id}>
      <input className={css.input} {...described({ hint, fault }, id)} {...rest} />
    </Wrapped>
  );
}

export function TextArea({ label, hint, fault, ...rest }: Wrap & TextareaHTMLAttributes<HTMLTextAreaElement>) {
  const id = useId();
  return (
    <Wrapped label={label} hint={hint} fault={fault} id={id}>
      <textarea className={css.input} spellCheck={false} {...described({ hint, fault }, id)} {...rest} />
    </Wrapped>
  );
}

export type Choice = readonly [value: string, label: string];

export function SelectField({ label, hint, fault, choices, ...rest }: Wrap & { choices: readonly Choice[] } & SelectHTMLAttributes<HTMLSelectElement>) {
  const id = useId();
  return (
    <Wrapped label={label} hint={hint} fault={fault} id={id}>
      <select className={css.input} {...described({ hint, fault }, id)} {...rest}>
        {choices.map(([value, name]) => (
          <option key={value} value={value}>
            {name}
          </option>
        ))}
      </select>
    </Wrapped>
  );
}

/** A select without a visible label, for toolbars. */
export function Pick({ label, choices, ...rest }: { label: string; choices: readonly Choice[] } & SelectHTMLAttributes<HTMLSelectElement>) {
  return (
    <select className={`${css.input} ${css.small}`} aria-label={label} {...rest}>
      {choices.map(([value, name]) => (
        <option key={value} value={value}>
          {name}
        </option>
      ))}
    </select>
  );
}

export function CheckField({ label, hint, ...rest }: { label: ReactNode; hint?: ReactNode } & InputHTMLAttributes<HTMLInputElement>) {
  return (
    <label className={css.check}>
      <input type="checkbox" {...rest} />
      <span>
        {label}
        {hint && <div className={css.hint}>{hint}</div>}
      </span>
    </label>
  );
}

export function Switch({ label, checked, onChange, disabled }: { label: string; checked: boolean; onChange: (on: boolean) => void; disabled?: boolean }) {
  return (
    <BaseSwitch.Root className={css.switch} aria-label={label} checked={checked} onCheckedChange={onChange} disabled={disabled}>
      <BaseSwitch.Thumb className={css.thumb} />
    </BaseSwitch.Root>
  );
}

export function Actions({ children }: { children: ReactNode }) {
  return <div className={css.actions}>{children}</div>;
}
