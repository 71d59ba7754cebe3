import type { ButtonHTMLAttributes, ReactNode } from "react";
import { Link, type LinkProps } from "react-router";

import css from "./button.module.css";

interface Look {
  variant?: "plain" | "primary" | "ghost";
  danger?: boolean;
  small?: boolean;
  icon?: ReactNode;
}

function look({ variant = "plain", danger, small, square }: Look & { square?: boolean }): string {
  return [css.button, variant !== "plain" && css[variant], danger && css.danger, small && css.small, square && css.icon].filter(Boolean).join(" ");
}

export interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement>, Look {}

export function Button({ variant, danger, small, icon, children, className, ...rest }: ButtonProps) {
  return (
    <button type="button" className={`${look({ variant, danger, small, square: !children })} ${className ?? ""}`} {...rest}>
      {icon}
      {children}
    </button>
  );
}

/** A button that is only an icon: its label is spoken, and shown on hover. */
export function IconButton({ label, ...rest }: Omit<ButtonProps, "children"> & { label: string }) {
  return <Button aria-label={label} title={label} variant="ghost" {...rest} />;
}

export function ButtonLink({ variant, danger, small, icon, children, ...rest }: LinkProps & Look) {
  return (
    <Link className={look({ variant, danger, small })} {...rest}>
      {icon}
      {children}
    </Link>
  );
}
