import { Dialog as Base } from "@base-ui/react/dialog";
import { Menu as BaseMenu } from "@base-ui/react/menu";
import { Tabs as BaseTabs } from "@base-ui/react/tabs";
import { Toast } from "@base-ui/react/toast";
import { X } from "lucide-react";
import { type ReactElement, type ReactNode, useMemo, useState } from "react";

import { Problem } from "../api/problem";
import { Button, IconButton } from "./button";
import css from "./float.module.css";
import { Actions } from "./form";
import { Fault } from "./panel";

export function Dialog({ open, onClose, title, lead, wide, children }: { open: boolean; onClose: () => void; title: ReactNode; lead?: ReactNode; wide?: boolean; children: ReactNode }) {
  return (
    <Base.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Base.Portal>
        <Base.Backdrop className={css.backdrop} />
        <Base.Popup className={`${css.dialog} ${wide ? css.wide : ""}`}>
          <div className="stack-small">
            <Base.Title className={css.title}>{title}</Base.Title>
            {lead && <Base.Description className={css.lead}>{lead}</Base.Description>}
          </div>
          {children}
          <span className={css.close}>
            <IconButton small label="Close" icon={<X size={16} />} onClick={onClose} />
          </span>
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}

/** Ask before something that cannot be taken back. Stays open, with the reason, when it fails. */
export function Confirm({ open, onClose, title, lead, action, danger, run, children, disabled }: { open: boolean; onClose: () => void; title: string; lead?: ReactNode; action: string; danger?: boolean; run: () => Promise<unknown>; children?: ReactNode; disabled?: boolean }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const close = () => {
    setError(null);
    onClose();
  };
  const confirm = async () => {
    setBusy(true);
    setError(null);
    try {
      await run();
      close();
    } catch (caught) {
      setError(caught);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog open={open} onClose={close} title={title} lead={lead}>
      {children}
      {error !== null && <Fault error={error} />}
      <Actions>
        <Button onClick={close}>Back</Button>
        <Button variant="primary" danger={danger} disabled={busy || disabled} onClick={() => void confirm()}>
          {busy ? "Working…" : action}
        </Button>
      </Actions>
    </Dialog>
  );
}

export interface MenuItem {
  label: string;
  icon?: ReactNode;
  danger?: boolean;
  disabled?: boolean;
  run: () => void;
}

export function Menu({ trigger, items, heading, opened }: { trigger: ReactElement<Record<string, unknown>>; items: readonly (MenuItem | null)[]; heading?: ReactNode; opened?: boolean }) {
  return (
    <BaseMenu.Root modal={false} defaultOpen={opened}>
      <BaseMenu.Trigger render={trigger} />
      <BaseMenu.Portal>
        <BaseMenu.Positioner className={css.positioner} sideOffset={4} align="end">
          <BaseMenu.Popup className={css.menu}>
            {heading && <div className={css.heading}>{heading}</div>}
            {items.map((item, at) =>
              item === null ? (
                // biome-ignore lint/suspicious/noArrayIndexKey: separators have no name
                <BaseMenu.Separator key={`separator-${at}`} className={css.separator} />
              ) : (
                <BaseMenu.Item key={item.label} className={`${css.item} ${item.danger ? css.danger : ""}`} disabled={item.disabled} onClick={item.run}>
                  {item.icon}
                  {item.label}
                </BaseMenu.Item>
              ),
            )}
          </BaseMenu.Popup>
        </BaseMenu.Positioner>
      </BaseMenu.Portal>
    </BaseMenu.Root>
  );
}

export interface Tab {
  value: string;
  label: ReactNode;
  content: ReactNode;
}

export function Tabs({ tabs, value, onChange }: { tabs: readonly Tab[]; value: string; onChange: (value: string) => void }) {
  return (
    <BaseTabs.Root value={value} onValueChange={(next) => onChange(String(next))}>
      <BaseTabs.List className={css.tabs}>
        {tabs.map((tab) => (
          <BaseTabs.Tab key={tab.value} value={tab.value} className={css.tab}>
            {tab.label}
          </BaseTabs.Tab>
        ))}
      </BaseTabs.List>
      {tabs.map((tab) => (
        <BaseTabs.Panel key={tab.value} value={tab.value} className={css.tabPanel}>
          {tab.content}
        </BaseTabs.Panel>
      ))}
    </BaseTabs.Root>
  );
}

/** Short messages at the edge of the page: what was done, or what went wrong. */
export function useTell(): { done: (title: string, text?: string) => void; failed: (error: unknown) => void } {
  const { add } = Toast.useToastManager();
  return useMemo(
    () => ({
      done: (title: string, text?: string) => void add({ title, description: text, type: "done" }),
      failed: (error: unknown) => {
        const problem = error instanceof Problem ? error : null;
        add({ title: problem?.title ?? "Something went wrong", description: problem?.detail ?? String(error), type: "error", timeout: 10_000 });
      },
    }),
    [add],
  );
}

function ToastList() {
  const { toasts } = Toast.useToastManager();
  return (
    <Toast.Viewport className={css.toasts}>
      {toasts.map((toast) => (
        <Toast.Root key={toast.id} toast={toast} className={css.toast}>
          <div>
            <Toast.Title className={css.toastTitle} render={<p />} />
            <Toast.Description className={css.toastText} />
          </div>
          <Toast.Close aria-label="Dismiss" render={<IconButton small label="Dismiss" icon={<X size={14} />} />} />
        </Toast.Root>
      ))}
    </Toast.Viewport>
  );
}

export function Toasts({ children }: { children: ReactNode }) {
  return (
    <Toast.Provider timeout={5000}>
      {children}
      <Toast.Portal>
        <ToastList />
      </Toast.Portal>
    </Toast.Provider>
  );
}
