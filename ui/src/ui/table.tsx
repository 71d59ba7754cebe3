import { type ColumnDef, getCoreRowModel, getSortedRowModel, type SortingState, useReactTable } from "@tanstack/react-table";
import { ArrowDown, ArrowUp } from "lucide-react";
import { type ReactNode, useState } from "react";

import css from "./table.module.css";

declare module "@tanstack/react-table" {
  interface ColumnMeta<TData, TValue> {
    right?: boolean;
  }
}

/** What a column draws. Called, not mounted as a component: a column that is made anew must not make its cells anew. */
export function drawn<T>(what: string | ((context: T) => ReactNode) | undefined, context: T): ReactNode {
  return typeof what === "function" ? what(context) : what;
}

/** A table of what fits on a page, sorted by a click on its heads. */
export function DataTable<T>({ label, rows, columns, rowId }: { label: string; rows: readonly T[]; columns: ColumnDef<T>[]; rowId: (row: T) => string }) {
  const [sorting, setSorting] = useState<SortingState>([]);
  const table = useReactTable({
    data: rows as T[],
    columns,
    state: { sorting },
    onSortingChange: setSorting,
    getCoreRowModel: getCoreRowModel(),
    getSortedRowModel: getSortedRowModel(),
    getRowId: rowId,
  });
  return (
    <div className={css.scroll} tabIndex={0} role="region" aria-label={label}>
      <table className={css.table}>
        <thead>
          {table.getHeaderGroups().map((group) => (
            <tr key={group.id}>
              {group.headers.map((header) => {
                const sorted = header.column.getIsSorted();
                const head = drawn(header.column.columnDef.header, header.getContext());
                return (
                  <th
                    key={header.id}
                    scope="col"
                    className={header.column.columnDef.meta?.right ? css.right : undefined}
                    aria-sort={sorted === "asc" ? "ascending" : sorted === "desc" ? "descending" : undefined}
                  >
                    {header.column.getCanSort() && header.column.accessorFn ? (
                      <button type="button" className={css.sort} onClick={header.column.getToggleSortingHandler()}>
                        {head}
                        {sorted === "asc" && <ArrowUp size={12} aria-hidden="true" />}
                        {sorted === "desc" && <ArrowDown size={12} aria-hidden="true" />}
                      </button>
                    ) : (
                      head
                    )}
                  </th>
                );
              })}
            </tr>
          ))}
        </thead>
        <tbody>
          {table.getRowModel().rows.map((row) => (
            <tr key={row.id}>
              {row.getVisibleCells().map((cell) => (
                <td key={cell.id} className={cell.column.columnDef.meta?.right ? css.right : undefined}>
                  {drawn(cell.column.columnDef.cell, cell.getContext())}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
